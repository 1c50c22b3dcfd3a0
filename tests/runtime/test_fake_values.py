"""Values that a predicted run asks for: which are answered, which are refused, and what becomes of sizes that
depend on them. Against real runs, whose values are like those that are taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from memplan_engine import InputError, observe_fake, observed_peak
from memplan_engine.recordings.observed_flow import Flow, flow_peak, state_bytes
from memplan_engine.runtime.recorder.assumed_values import LINE_SEARCH
from memplan_engine.runtime.recorder.checks import _checks
from memplan_engine.runtime.recorder.unknown_count import UnknownCount
from tests.runtime.test_fake_habits import Kept, measured, measured_whole
from tests.support.measured import PeakMode


def net(width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))


def trained(step: Callable[[Any, torch.Tensor, torch.Tensor], Any], count: int = 3) -> Kept:
    model, kept = net(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(count):
        optimizer.zero_grad()
        x, y = torch.rand(6, 8), torch.arange(6) % 4
        result = model(x)
        loss = functional.cross_entropy(result, y)
        kept.append(step(loss, result, y))
        loss.backward()
        optimizer.step()
    return [model, optimizer]


def accuracy() -> Kept:
    right = 0

    def step(loss: Any, result: Any, y: Any) -> float:
        nonlocal right
        right += (result.argmax(1) == y).sum().item()
        print(f"{right:>5} {100.0 * right / 6:.2f} {round(right / 6, 2)}")
        return right / 6

    return trained(step)


def not_a_number() -> Kept:
    def step(loss: Any, result: Any, y: Any) -> float:
        if torch.isnan(loss) or loss.isinf() or not torch.isfinite(result).all():
            raise SystemExit(1)
        assert (result < 1e9).all()
        return float(loss.item())

    return trained(step)


def best_of() -> Kept:
    best = 1e9

    def step(loss: Any, result: Any, y: Any) -> None:
        nonlocal best
        if loss < best:
            best = loss.item()

    return trained(step)


def written_elsewhere() -> Kept:
    def step(loss: Any, result: Any, y: Any) -> Any:
        # Arrays hold the memory of the tensors that they were.
        return result.detach().numpy(), loss.tolist(), y.tolist()

    return trained(step)


def distributions() -> Kept:
    encode, decode = nn.Linear(8, 8), nn.Linear(4, 8)
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()])
    for _ in range(2):
        mean, deviation = encode(torch.rand(6, 8)).chunk(2, -1)
        drawn = torch.distributions.Normal(mean, deviation.exp())
        loss = decode(drawn.rsample()).pow(2).sum() - drawn.log_prob(torch.zeros(6, 4)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [encode, decode, optimizer]


def packed() -> Kept:
    cells, head = nn.LSTM(8, 16, batch_first=True, bidirectional=True), nn.Linear(32, 1)
    optimizer = torch.optim.SGD([*cells.parameters(), *head.parameters()], 0.1)
    for _ in range(2):
        lengths = torch.tensor([9, 6, 4, 4])
        rows = nn.utils.rnn.pack_padded_sequence(
            torch.rand(4, 9, 8), lengths, batch_first=True, enforce_sorted=True
        )
        result, again = nn.utils.rnn.pad_packed_sequence(cells(rows)[0], batch_first=True)
        assert again.tolist() == [9, 6, 4, 4]
        head(result).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [cells, head, optimizer]


def sequences_aligned() -> Kept:
    model = nn.Linear(8, 10)
    for _ in range(2):
        scores = model(torch.rand(12, 3, 8)).log_softmax(-1)
        lengths = torch.full((3,), 12), torch.tensor([4, 5, 3])
        functional.ctc_loss(scores, torch.ones(3, 5, dtype=torch.long), *lengths).backward()
        model.zero_grad()
    return [model]


def different_words() -> Kept:
    words = nn.Embedding(20, 8)
    words(torch.tensor([1, 3, 3, 5, 1]).unique()).sum().backward()
    return [words]


def quasi_newton(lr: float = 1e-3, history: int = 100, search: str | None = None) -> Kept:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=lr, max_iter=5, history_size=history, line_search_fn=search
    )
    x, y = torch.rand(32, 8), torch.rand(32, 1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return [model, optimizer]


def derivatives() -> Kept:
    model, x = nn.Linear(4, 3), torch.rand(5, 4)
    torch.func.vmap(torch.func.jacfwd(lambda row: model(row).tanh()))(x).sum().backward()
    return [model]


def gradients_of_each_sample() -> Kept:
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    weights = {name: each.detach() for name, each in model.named_parameters()}

    def loss(given: Any, row: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, given, (row[None],)).pow(2).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, torch.rand(10, 6))
    sum(gradient.pow(2).sum() for gradient in each.values())
    return [model]


def averaged() -> Kept:
    """A copy of a model whose counts have values, and whose weights have gradients."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    copy = deepcopy(model).requires_grad_(False)
    model.zero_grad()
    assert next(copy.parameters()).grad is None
    assert [each.item() for each in copy.buffers() if not each.dim()] == [1]
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(2):
        model(torch.rand(2, 3, 8, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for mean, each in zip(copy.parameters(), model.parameters(), strict=True):
                mean.lerp_(each, 0.01)
    return [model, copy, optimizer]


def ensemble() -> Kept:
    """Two of whose three modules nobody calls, and no optimizer knows."""
    parts = [nn.Linear(6, 6) for _ in range(2)]
    weights, _ = torch.func.stack_module_state(parts)
    stacked = nn.ParameterDict({name.replace(".", "_"): each for name, each in weights.items()})
    given = {name.replace("_", "."): each for name, each in stacked.items()}

    def called(weights: Any, x: torch.Tensor) -> Any:
        return torch.func.functional_call(parts[0], weights, (x,))

    torch.func.vmap(called, in_dims=(0, None))(given, torch.rand(4, 6)).sum().backward()
    return [stacked, *parts]


def stacked() -> Kept:
    """Weights of models that nobody calls, stacked for another one."""
    parts = [net() for _ in range(3)]
    weights, buffers = torch.func.stack_module_state(parts)
    base = deepcopy(parts[0])

    def called(weights: Any, buffers: Any, x: torch.Tensor) -> Any:
        return torch.func.functional_call(base, (weights, buffers), (x,))

    torch.func.vmap(called, in_dims=(0, 0, None))(weights, buffers, torch.rand(6, 8))
    return [base, *parts]


def trained_as_a_function() -> Kept:
    """Weights in a dict, with their averages in another; those of the model stay as they were."""
    model = net()
    weights = {name: each.detach().clone() for name, each in model.named_parameters()}
    means = {name: each.clone() for name, each in weights.items()}
    x = torch.rand(6, 8)
    for _ in range(3):
        slopes = torch.func.grad(lambda w: torch.func.functional_call(model, w, (x,)).sum())(weights)
        weights = {name: each - 0.1 * slopes[name] for name, each in weights.items()}
        for name, each in means.items():
            each.lerp_(weights[name], 0.1)
    return [model]


def statistics_of_instances() -> Kept:
    parts = [nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.Conv2d(4, 2, 3)]
    model = nn.Sequential(*parts)
    model(torch.rand(2, 3, 12, 12)).sum().backward()
    return [model]


def evaluated(around: Callable[[], Any]) -> Kept:
    """An evaluation loop, with the inner parts of an encoder, whose dropout is on."""
    model = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 4))
    total, right = 0.0, 0
    with around():
        for _ in range(2):
            y = torch.arange(6) % 4
            result = model(torch.rand(6, 5, 16).transpose(0, 1).contiguous().transpose(0, 1)).mean(1)
            loss = functional.cross_entropy(result, y)
            assert torch.isfinite(result).all()
            total += loss.item() * len(y) + float(loss)
            right += (result.argmax(1) == y).sum().item()
            print(f"{total:.3f} {loss:.3f} {right:>4}", int(y[1]), y.tolist(), bool(y[0] == 0))
            result.argmax(1).tolist(), result.numpy(), torch.zeros(int(y.max()))
    print(loss.item())
    return [model]


def lists_of_numbers() -> Kept:
    rows, columns = torch.tensor(3), torch.tensor(5)
    sizes = torch.tensor([rows, columns])
    x = torch.zeros(sizes.tolist())
    flags = torch.tensor([torch.tensor(True), torch.tensor(False), torch.tensor(True)])
    x[flags], x[:, [rows, 1]], x[[0, rows - 1], [columns - 1, 0]]
    likely = torch.rand(3).argmax()
    x[:, torch.tensor([likely, 2])], x[torch.as_tensor([likely, rows - 1])]
    losses = torch.tensor([torch.rand(3).sum() for _ in range(4)])
    print(losses.mean().item())
    return []


def classes_as_rows() -> Kept:
    functional.one_hot(torch.arange(24).view(4, 6))
    functional.one_hot(torch.rand(4, 6).argmax(1), num_classes=6).float()
    functional.one_hot(torch.empty(0, dtype=torch.long), 4)
    return []


def lengths_as_tuples() -> Kept:
    model = nn.Linear(8, 10)
    for zero_infinity in (False, True):
        scores = model(torch.rand(12, 3, 8)).log_softmax(-1)
        loss = nn.CTCLoss(zero_infinity=zero_infinity)
        loss(scores, torch.randint(1, 10, (3, 5)), (12, 12, 12), (4, 5, 3)).backward()
        model.zero_grad()
    return [model]


def written_into_empty() -> Kept:
    sizes = torch.empty(3, dtype=torch.long)
    sizes[0], sizes[1:] = 3, torch.tensor([4, 5])
    torch.zeros(sizes.tolist())
    part = torch.empty(2, 2, dtype=torch.long)
    part[0] = 7
    torch.zeros(int(part[0, 1]))
    mask = torch.empty(6, 6).fill_(float("-inf")).triu_(1)
    torch.rand(6, 6)[mask == 0]
    return []


def drawn_from_a_generator() -> Kept:
    generator = torch.Generator().manual_seed(3)
    torch.zeros(torch.randint(3, 90, (1,), generator=generator).item())
    for _ in range(3):
        # In step with an eager run, whatever else is drawn from it.
        torch.rand(4, generator=generator), torch.empty(5).normal_(generator=generator)
        if torch.rand(1, generator=generator).item() < 0.5:
            torch.zeros(int(torch.randint(3, 90, (), generator=generator)))
    torch.zeros(torch.randperm(5, generator=generator)[:2].add(1).tolist())
    return []


class Experts(nn.Module):
    """Four experts, of which `route` chooses two for each of the rows of `x`."""

    def __init__(self, route: Callable[[Experts, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.gate, self.route = nn.Linear(8, 4, bias=False), route
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores, chosen = self.gate(x).softmax(-1).topk(2, -1)
        return self.route(self, x, chosen) * scores.sum()


def one_by_one(model: Experts, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    result = torch.zeros_like(x)
    mask = functional.one_hot(chosen, 4).permute(2, 1, 0)
    for part, each in zip(model.parts, mask, strict=True):
        _, rows = torch.where(each)
        if not each.any():
            continue
        result.index_add_(0, rows, part(x[rows]))
    return result


def sorted_by_expert(model: Experts, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    order = chosen.flatten().argsort(stable=True)
    sizes = torch.bincount(chosen.flatten(), minlength=4).tolist()
    groups = x[order // 2].split(sizes)
    results = [part(group) for part, group in zip(model.parts, groups, strict=True)]
    return torch.zeros_like(x).index_add(0, order // 2, torch.cat(results))


def scattered(model: Experts, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    sizes = torch.zeros(len(x), 4).scatter(1, chosen, 1).long().sum(0).tolist()
    rows = x[chosen.flatten().sort(0)[1].div(2, rounding_mode="trunc")]
    return torch.cat([part(group) for part, group in zip(model.parts, rows.split(sizes), strict=True)])[::2]


def experts(route: Callable[[Experts, torch.Tensor, torch.Tensor], torch.Tensor]) -> Kept:
    """Rows that want each expert as often as any other."""
    model = Experts(route)
    with torch.no_grad():
        model.gate.weight.copy_(torch.eye(4, 8))
    for _ in range(2):
        wanted = torch.eye(8)[torch.tensor([[0, 1], [2, 3]] * 6)].sum(1)
        model(wanted + torch.rand(12, 8) / 100).sum().backward()
        model.zero_grad()
    return [model]


def parts_of_an_unknown_place() -> Kept:
    table = nn.Parameter(torch.rand(4, 8, 6))
    place = torch.rand(4).argmax()
    (table[place, :, 2:4].exp() + table[place, place, 0]).sum().backward()
    written = torch.zeros(4, 8)
    written[place], written[place, place], written[0, place] = 1, 2, torch.rand(())
    sizes = torch.tensor([[3, 50], [40, 60]])
    sizes[place.clamp(max=1)]
    torch.zeros(sizes[1].tolist()), torch.zeros(int(sizes[torch.tensor(0), 1]))
    return []


def written_in_part() -> Kept:
    """What is overwritten is known, and so is what stays as it is."""
    order = torch.rand(4).argsort()
    order[0] = 30
    sizes = torch.zeros(3, dtype=torch.long)
    sizes[1], sizes[0] = torch.rand(4).argmax(), 300
    copy = sizes.clone()
    copy[2:] += 5
    torch.zeros(int(order[0])), torch.zeros(int(sizes[0]), int(copy[2])), torch.zeros(int(sizes[2]))
    values = torch.rand(3, 4)
    values[1:] = 2
    torch.zeros(int(values[1:].sum()))
    return []


def split_at_places() -> Kept:
    x, places = torch.rand(12, 4), torch.tensor([3, 7])
    parts = [*torch.tensor_split(x, places), *x.tensor_split(torch.tensor([1, 1]), dim=1)]
    [part.clone() for part in (*parts, *x.tensor_split(torch.tensor(3)))]
    return []


def targets_of_unknown_lengths() -> Kept:
    """In each batch some target is as long as its row."""
    model = nn.Linear(8, 10)
    for _ in range(2):
        scores = model(torch.rand(12, 3, 8)).log_softmax(-1)
        targets = torch.rand(3, 5).add(1).long()
        lengths = (targets != 0).sum(1)
        nn.CTCLoss()(scores, targets, torch.full((3,), 12), lengths).backward()
        model.zero_grad()
    return [model]


def found_once() -> Kept:
    """Results in storages as large as what they were looked for in; their values are known."""
    x = torch.tensor([1.0, 2, 2, 3, 1, 1])
    runs, places, counts = torch.unique_consecutive(x, return_inverse=True, return_counts=True)
    rows = torch.tensor([[1, 1], [2, 2], [2, 2], [1, 1]])
    whole = torch.unique(rows, dim=0, return_inverse=True, return_counts=True)
    kept = torch.unique_consecutive(rows, dim=0), torch.unique(rows), torch.unique_consecutive(rows[:0])
    held = torch.zeros(int(runs.sum()) + counts.tolist()[1] + whole[2].tolist()[0])
    held.add_(len(places) + len(kept))
    return []


def of_more_equations() -> Kept:
    left, right = torch.arange(54.0).reshape(2, 9, 3).sin(), torch.arange(72.0).reshape(2, 9, 4)
    solved = [torch.linalg.lstsq(left, right, driver=driver) for driver in ("gels", "gelsd", "gelsy")]
    solved.append(torch.linalg.lstsq(left.mT, right[:, :3]))
    return [] if solved else [nn.Linear(1, 1)]


def one_hot() -> Kept:
    drawn, given = torch.randint(0, 5, (100,)), torch.tensor([[0, 4], [2, 2]])
    held = [functional.one_hot(drawn, 5).float(), functional.one_hot(given), functional.one_hot(given[:0], 5)]
    return [] if held else [nn.Linear(1, 1)]


def flow_of(case: Callable[[], Kept]) -> tuple[Flow, tuple[str, ...]]:
    """What is predicted of `case`, and its operators."""
    seen = observe_fake(case, name="case")
    assert seen.flow is not None
    return seen.flow, seen.ops.kinds


CASES = (
    accuracy, not_a_number, best_of, written_elsewhere, distributions, packed, sequences_aligned,
    classes_as_rows, lists_of_numbers, lengths_as_tuples, written_into_empty, drawn_from_a_generator,
    parts_of_an_unknown_place, written_in_part, split_at_places, targets_of_unknown_lengths,
    found_once, of_more_equations, one_hot, different_words, derivatives, gradients_of_each_sample,
    ensemble, stacked, trained_as_a_function, averaged, statistics_of_instances,
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_scripts_ask_for_is_answered(case: Callable[[], Kept]) -> None:
    seen = observe_fake(case)
    assert seen.flow is not None
    assert flow_peak(seen.flow)[0] == measured(case) > 0


@pytest.mark.parametrize("route", [one_by_one, sorted_by_expert, scattered])
def test_rows_are_spread_evenly_over_experts(route: Any) -> None:
    case = partial(experts, route)
    flow, _ = flow_of(case)
    assert flow_peak(flow)[0] == measured(case)
    (note,) = flow.assumed
    assert note.startswith("what `topk` chooses at ")
    assert note.endswith(" as spread evenly over 4")


def test_a_choice_that_decides_no_size_is_not_noted() -> None:
    class Best(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.gather(-1, x.topk(2, -1)[1])

    flow = observe_fake(Best(), (torch.rand(4, 8) + 1,)).flow
    assert flow is not None
    assert flow.assumed == ()


@pytest.mark.parametrize(("case", "models"), [(stacked, 4), (trained_as_a_function, 1)])
def test_tensors_in_place_of_weights_are_no_state(case: Callable[[], Kept], models: int) -> None:
    """By hand: the weights of the modules that there are, and no others."""
    flow, _ = flow_of(case)
    assert state_bytes(flow) == models * 4 * (8 * 16 + 16 + 16 * 4 + 4)


def test_a_model_on_the_device_meta_has_no_bytes() -> None:
    """By hand: an input of 4 × 64 numbers and a result of 4 × 8."""

    def run() -> Any:
        with torch.device("meta"):
            model = nn.Linear(64, 8, bias=False)
        model.to_empty(device="cpu")
        with torch.no_grad():
            return model(torch.rand(4, 64))

    flow, _ = flow_of(run)
    assert state_bytes(flow) == 4 * 64 * 8
    assert flow_peak(flow)[0] == 4 * (4 * 64 + 4 * 8)


def test_runs_of_equal_numbers_have_room_for_each_number() -> None:
    """By hand: six numbers, then as many runs, their places and how long they are."""

    def runs() -> Any:
        return torch.unique_consecutive(torch.tensor([1.0, 2, 2, 3, 1, 1]), True, True)

    flow, kinds = flow_of(runs)
    op = kinds.index("aten.unique_consecutive")
    assert [int(flow.storages.nbytes[each]) for each in flow.makes[op]] == [6 * 4, 6 * 8, 6 * 8]
    assert [flow.storages.shapes[each] for each in flow.makes[op]] == [(4,), (6,), (4,)]


def test_inference_mode_holds_and_assumes_what_no_grad_does() -> None:
    """Its composite operators are seen as those that they are made of."""
    seen = [flow_of(partial(evaluated, around)) for around in (torch.no_grad, torch.inference_mode)]
    (plain, plain_kinds), (inference, kinds) = seen
    assert flow_peak(inference) == flow_peak(plain)
    assert flow_peak(plain)[0] == measured(partial(evaluated, torch.no_grad))
    assert [kind for kind in kinds if kind != "aten.detach_"] == list(plain_kinds)
    assert inference.assumed == plain.assumed


def written_somewhere(i: torch.Tensor) -> None:
    sizes = torch.tensor([3, 5])
    sizes[i] = 7
    torch.zeros(int(sizes[1]))


def compared_in_part(i: torch.Tensor) -> None:
    both = torch.stack([i, i])
    both[0] = 3
    torch.zeros(int((both == 7).any()))


@pytest.mark.parametrize(
    "ask",
    [
        lambda i: torch.zeros(torch.tensor([i, 2]).tolist()),
        lambda i: torch.zeros(int(torch.tensor([3, 5])[[i]])),
        lambda i: torch.zeros(int(torch.tensor([[3, 5], [1, 1]])[[i], :1])),
        lambda i: torch.zeros(int(torch.empty(2, dtype=torch.long).index_fill_(0, torch.tensor([0]), 3)[1])),
        lambda i: torch.zeros(int(torch.empty(2, dtype=torch.long).fill_(i)[0])),
        lambda i: torch.zeros(int(torch.tensor([3, 5])[i])),
        lambda i: torch.zeros(int(torch.tensor([[3, 5], [1, 1]])[i][0])),
        lambda i: torch.zeros(int(torch.tensor([[3, 5], [1, 1]])[i].view(2)[0:1] + 1)),
        lambda i: torch.zeros(int(torch.tensor([3, 5]).index_put_((i,), torch.tensor(7))[1])),
        written_somewhere,
        compared_in_part,
        lambda i: torch.rand(12)[i : i + 3],
        lambda i: torch.rand(12, 3)[i, : i + 1],
        lambda i: torch.rand(12, 3)[[1, 2, 3][i]],
        lambda i: torch.rand(12).tensor_split(torch.stack([i, i + 1])),
    ],
)
def test_what_is_made_of_unknown_numbers_is_not_known(ask: Any) -> None:
    with pytest.raises(InputError, match=r"test_fake_values\.py:\d+"):
        observe_fake(lambda: ask(torch.rand(2).argmax()))


def test_a_generator_is_left_as_it_was_found() -> None:
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    observe_fake(lambda: torch.zeros(torch.randint(3, 90, (1,), generator=generator).item()))
    assert generator.get_state().equal(before)


def test_a_generator_of_which_too_much_is_drawn_is_lost_until_it_is_seeded() -> None:
    def run(seeded: bool) -> None:
        generator = torch.Generator().manual_seed(3)
        torch.rand(2**20 + 1, generator=generator)
        if seeded:
            generator.manual_seed(4)
        torch.zeros(int(torch.randint(3, 90, (1,), generator=generator)))

    observe_fake(partial(run, True), name="run")
    with pytest.raises(InputError, match=r"test_fake_values\.py:\d+"):
        observe_fake(partial(run, False), name="run")


def draws(w: torch.Tensor) -> None:
    """Draw from the global generator in as many ways as torch has that look at no values."""
    nn.init.kaiming_normal_(w), nn.init.orthogonal_(w), nn.init.normal_(w.t()), nn.init.sparse_(w, 0.1)
    w[::2].normal_(), w[:, ::3].uniform_(), w.sigmoid().expand(3, 33, 77).bernoulli()
    (
        torch.rand_like(w.t()),
        torch.randint_like(w, 10),
        torch.normal(0.0, torch.rand(5)),
        torch.empty(20, dtype=torch.long).random_(),
    )
    torch.empty(40).exponential_(), torch.empty(40).geometric_(0.3), torch.empty(9).half().cauchy_()
    torch.multinomial(torch.rand(30), 4), torch.multinomial(torch.rand(30), 40, True), torch.randperm(17)
    functional.dropout(w, 0.3), functional.dropout2d(torch.rand(2, 3, 4, 4)), functional.gumbel_softmax(w)
    nn.LSTM(10, 20, 2, dropout=0.3)(torch.rand(4, 3, 10))
    nn.Transformer(16, 2, 1, 1, 32)(torch.rand(3, 2, 16), torch.rand(3, 2, 16))
    query, key, value = torch.rand(3, 1, 2, 8, 8)
    functional.scaled_dot_product_attention(query, key, value, dropout_p=0.2)
    checkpoint(nn.Dropout(0.3), torch.rand(40, 40, requires_grad=True), use_reentrant=False).sum().backward()
    with torch.random.fork_rng():
        torch.manual_seed(8)
    state = torch.get_rng_state()
    torch.rand(3)
    torch.set_rng_state(state)


def test_numbers_of_a_seed_are_those_of_a_real_run() -> None:
    """With nothing else drawn between, whatever the draws are."""
    seen = []

    def run() -> None:
        torch.manual_seed(3)
        draws(torch.zeros(33, 77))
        seen.append(torch.randint(0, 2**40, (3,)).tolist())
        seen.append([int(torch.rand(1).item() < 0.5) for _ in range(20)])

    observe_fake(run)
    run()
    assert seen[:2] == seen[2:]
    assert 0 < sum(seen[1]) < 20


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.poisson(torch.rand(3)),
        lambda: nn.init.trunc_normal_(torch.empty(30, 30)),
        lambda: torch.randn(2**12, 2**12 + 1),
        torch.seed,
    ],
)
def test_numbers_of_a_seed_are_unknown_after_a_draw_that_values_decide_or_a_large_one(draw: Any) -> None:
    def run(seeded: bool) -> None:
        torch.manual_seed(3)
        draw()
        if seeded:
            torch.manual_seed(4)
        torch.zeros(int(torch.randint(3, 90, ())))

    observe_fake(partial(run, True), name="run")
    with pytest.raises(InputError, match=r"test_fake_values\.py:\d+"):
        observe_fake(partial(run, False), name="run")


@pytest.mark.parametrize("options", [(1e-3, 100), (0.1, 2)])
def test_searches_of_lbfgs_go_on_to_their_end(options: tuple[float, int]) -> None:
    """As many evaluations as in a real run, and the same peak with the weights and the directions kept."""
    case = partial(quasi_newton, *options)
    flow, kinds = flow_of(case)
    assert sum(kind.startswith("aten.mse_loss_backward") for kind in kinds) == 10
    assert flow_peak(flow)[0] + state_bytes(flow) == measured_whole(case)
    assert LINE_SEARCH not in flow.assumed


def test_a_line_search_says_that_its_peak_depends_on_values() -> None:
    flow, _ = flow_of(partial(quasi_newton, 1.0, 100, "strong_wolfe"))
    assert LINE_SEARCH in flow.assumed


def test_each_answer_is_noted_with_its_line() -> None:
    flow = observe_fake(accuracy).flow
    assert flow is not None
    (note,) = flow.assumed
    assert note.startswith("the value of a tensor of shape (), asked for at ")
    assert "test_fake_values.py:" in note


@pytest.mark.parametrize(
    "ask",
    [
        lambda y: torch.zeros(int((y > 0).sum())),
        lambda y: torch.zeros((y > 0).sum().item()),
        lambda y: y[: (y > 0).sum().item()],
        lambda y: list(range((y > 0).sum().item())),
        lambda y: (y > 0).numpy(),
        lambda y: y.argmax().numpy(),
    ],
)
def test_sizes_and_branches_that_nobody_knows_are_refused_with_the_line(ask: Any) -> None:
    def run() -> None:
        ask(torch.rand(8))

    with pytest.raises(InputError, match=r"test_fake_values\.py:\d+"):
        observe_fake(run)


class Steered(nn.Module):
    """Does with a number of its results what `use` does, and gives so much more."""

    def __init__(self, use: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.use = nn.Linear(8, 8), use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        return torch.cat([h] * 9) if self.use(h) else h


@pytest.mark.parametrize(
    "use",
    [
        lambda h: h.mean().item() > 0.9,
        lambda h: h[0, 0].item() < 0,
        lambda h: h.norm().item() * 2 >= 1,
        lambda h: float(h.abs().max()),
        lambda h: int(h.sum()),
        lambda h: round(h.std().item()),
        lambda h: int(h.mean(1).tolist()[0] * 8),
        lambda h: h.mean().item(),
    ],
)
def test_no_number_steers_the_model_that_computes_it(use: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(InputError, match=r"test_fake_values\.py:\d+"):
        observe_fake(Steered(use), (torch.rand(4, 8),))


def test_a_model_may_write_down_what_it_computes() -> None:
    written = []

    def write(h: torch.Tensor) -> bool:
        written.append(1 + h.norm().item() / 2)
        print(f"{written[-1]:.3f}")
        return False

    flow = observe_fake(Steered(write), (torch.rand(4, 8),)).flow
    assert flow is not None
    (note,) = flow.assumed
    assert note.startswith("the value of a tensor of shape (), asked for at ")


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_generate_makes_all_of_its_tokens(around: Callable[[], Any]) -> None:
    """As a real run does that meets no end of a sequence."""
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 100, "n_positions": 64}
    config = transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=99, pad_token_id=0)
    torch.manual_seed(0)
    made = []

    def run() -> Kept:
        model = transformers.GPT2LMHeadModel(config).eval()
        with around():
            tokens = model.generate(torch.tensor([[5, 6, 7], [3, 4, 5]]), max_new_tokens=8, do_sample=False)
        made.append(tuple(tokens.shape))
        return [model]

    flow, _ = flow_of(run)
    assert flow_peak(flow)[0] == measured(run)
    assert set(made) == {(2, 11)}
    (note,) = flow.assumed
    assert note == "no sequence as ended before `generate` has made all of its tokens"


@pytest.mark.parametrize(
    "use",
    [
        lambda count: torch.zeros(count),
        lambda count: torch.zeros(count, 4),
        lambda count: torch.rand(8).split([count, 8 - count]),
        lambda count: torch.rand(8).view(count, -1),
        lambda count: functional.pad(torch.rand(3), (0, count)),
        lambda count: torch.rand(8).topk(count),
        lambda count: [1, 2, 3][count],
    ],
)
def test_a_count_that_is_a_size_is_refused_with_both_lines(use: Any) -> None:
    line = r"test_fake_values\.py:\d+"
    message = rf"asked for at .*{line}, that is used as a size or a place at .*{line}, expected sizes that"
    with pytest.raises(InputError, match=message):
        observe_fake(lambda: use((torch.rand(8) > 0.5).sum().item()))


@pytest.mark.parametrize("make", [lambda n: torch.tensor(n), lambda n: torch.as_tensor([[n, 2]])[0, :1]])
def test_a_tensor_of_counts_is_made_and_not_known(make: Any) -> None:
    def run(asks: bool) -> None:
        made = make((torch.rand(8) > 0.5).sum().item())
        torch.zeros(int(made) if asks else 9)

    with PeakMode() as mode:
        run(False)
    assert observed_peak(observe_fake(partial(run, False), name="run"))[0] == mode.peak
    with pytest.raises(InputError, match=r"test_fake_values\.py:\d+"):
        observe_fake(partial(run, True), name="run")


@pytest.mark.parametrize(
    "use",
    [
        lambda count: torch.rand(8)[count],
        lambda count: torch.full((3,), count),
        lambda count: torch.rand(8).chunk(count),
    ],
)
def test_a_count_that_torch_does_not_take_is_refused_with_the_line(use: Any) -> None:
    message = r"a whole number that is not known, used at .*test_fake_values\.py:\d+, expected sizes that"
    with pytest.raises(InputError, match=message):
        observe_fake(lambda: use((torch.rand(8) > 0.5).sum().item()))


def test_counts_are_written_and_compared() -> None:
    def run() -> None:
        count = (torch.rand(8) > 0.5).sum().item()
        assert json.dumps({"right": count}) == '{"right": 1}'
        assert (torch.rand(8) > count).shape == (count <= torch.rand(8)).shape == (8,)
        assert max(count, 3) == 3 > count
        assert (count**2, 2**count, 7 % (count + 1), 7 // count) == (1, 2, 1, 7)

    observe_fake(run)
    with pytest.raises(TypeError):
        json.dumps({"right": UnknownCount(1, "")})


def test_counts_are_numbers_but_no_sizes() -> None:
    count = UnknownCount(1, "at x.py:3")
    assert (count + 2, 2 + count, 3 * count, 5 - count, count - 1) == (3, 3, 3, 4, 0)
    assert (count / 4, 4 / count, count // 2, count % 2, -count, abs(-count)) == (0.25, 4, 0, 1, -1, 1)
    assert count < 2 <= count + 1
    assert (f"{count:d}", str(count + 1), float(count), bool(count - 1)) == ("1", "2", 1.0, False)
    assert type(count + 1) is UnknownCount
    assert np.mean([0.5, float(count)]) == 0.75
    with pytest.raises(InputError, match=r"at x\.py:3, that is used as a size"):
        range(count)


def test_checks_are_found_by_their_lines(tmp_path: Any) -> None:
    path = tmp_path / "code.py"
    path.write_text(
        "if not a:\n    raise E\nassert b\nif c:\n    d\nif e and f:\n    raise E\nassert not g\n"
    )
    assert _checks(str(path)) == {1: True, 3: True, 8: False}


def test_what_is_there_before_the_run_is_not_made_by_it() -> None:
    """A model and inputs that a function finds around it."""
    model, x = net(), torch.rand(6, 8)

    def run() -> None:
        model(x).sum().backward()

    flow = observe_fake(run).flow
    assert flow is not None
    made = flow.storages.nbytes[flow.storages.maker >= 0].tolist()
    # As large as the first weight is its gradient only.
    assert made.count(8 * 16 * 4) == 1


def test_a_lazy_module_is_refused_with_its_name_and_the_line() -> None:
    def run() -> Any:
        return nn.Sequential(nn.LazyLinear(3))(torch.rand(2, 5))

    with pytest.raises(InputError) as refused:
        observe_fake(run)
    assert "LazyLinear, whose weights have no size yet, at " in str(refused.value)
    assert "test_fake_values.py:" in str(refused.value)
    nn.LazyLinear(3)


def test_a_lazy_module_elsewhere_is_left_alone() -> None:
    elsewhere = nn.LazyLinear(3)
    seen = observe_fake(lambda: trained(lambda *_: None, 1))
    assert seen.flow is not None
    assert nn.parameter.is_lazy(elsewhere.weight)
