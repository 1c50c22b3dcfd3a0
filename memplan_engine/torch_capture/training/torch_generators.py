"""Random numbers that are drawn from generators while a step runs on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DRAWS = {
    f"aten::{name}"
    for name in (
        *("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "multinomial"),
        *("bernoulli", "bernoulli_", "native_dropout", "uniform", "uniform_", "normal", "normal_", "random_"),
        *("exponential", "exponential_", "geometric", "geometric_", "cauchy", "cauchy_", "log_normal_"),
    )
}
"""Operators that draw as many numbers as the form of their arguments says, whatever their values."""
OTHERS = {f"aten::{name}" for name in ("binomial", "poisson", "_standard_gamma", "_sample_dirichlet")}
"""Those of other names that draw, as many as values say, and `rrelu_with_noise`."""
MOST_DRAWN = 2**24
"""Numbers of the global generator that are drawn in a run for the sake of those after them."""
FEW_DRAWN, FEW_WHOLE = 64, 2**16
"""So many numbers of one draw, or whole numbers, have values."""


@contextmanager
def on_real_tensors() -> Iterator[None]:
    """Leave whatever is traced, for work on real tensors."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.utils._python_dispatch import _disable_current_modes

    # Without functions' modes a default device is none of them.
    plain = torch._C.DisableTorchFunction()
    with _disable_current_modes(), unset_fake_temporarily(), torch.no_grad(), plain:
        yield


class DrawnFrom:
    """The generators that operators draw from, which are real: what is drawn from them advances them as in an
    eager run. One is lost where something was drawn that is not worked out, until it is seeded again; the
    global one, with `is_global`, until a script seeds it."""

    def __init__(self) -> None:
        self.before: dict[int, tuple[torch.Generator, torch.Tensor]] = {}
        """By identity, those that were drawn from, and their states before the run."""
        self.lost: dict[int, torch.Tensor] = {}
        self.last: torch.Tensor | None = None
        self.is_global = False
        self._seed: int | None = None
        """That of the global generator, where its numbers are those of an eager run."""
        self._left = MOST_DRAWN

    def of(self, operator: Any, kwargs: Any, results: list[torch.Tensor]) -> Any:
        """Return the generator from which `operator` draws `results`, None where it is not followed."""
        import torch

        given, name = kwargs.get("generator"), operator._schema.name
        if given is not None or not self.is_global or not self._is_seeded():
            return given
        on_cpu = all(leaf.device.type == "cpu" for leaf in results)
        if on_cpu and (name in OTHERS or "rrelu_with_noise" in name):
            self._seed = None
        return torch.default_generator if on_cpu and name in DRAWS else None

    def lose_global(self) -> None:
        """Take the numbers of the global generator for others than those of an eager run, until a script
        seeds it."""
        self._seed = None

    def _is_seeded(self) -> bool:
        import torch

        # It may have been seeded elsewhere.
        return self._seed is not None and torch.default_generator.initial_seed() == self._seed

    def is_known(self, generator: Any, results: list[torch.Tensor]) -> bool:
        """Return whether numbers that come next from `generator` are those of an eager run, and are no more
        than are worth a value where it is the global one."""
        import torch

        if generator is None or generator.device.type != "cpu":
            return False
        if generator is torch.default_generator:
            few = (FEW_DRAWN if leaf.is_floating_point() else FEW_WHOLE for leaf in results)
            return self._is_seeded() and all(
                leaf.numel() <= most for leaf, most in zip(results, few, strict=True)
            )
        state = self.lost.get(id(generator))
        with on_real_tensors():
            if state is not None and not generator.get_state().equal(state):
                del self.lost[id(generator)]
        return id(generator) not in self.lost

    def set_by(self, name: str, args: Any, value_of: Callable[[Any], Any]) -> torch.Tensor | None:
        """Seed the global generator or put it in another state, as the operator `name` says; return its state
        where that is asked for and is the one of an eager run."""
        import torch

        generator = torch.default_generator
        if not self.is_global:
            return None
        with on_real_tensors():
            if name == "memplan::get_rng_state":
                return generator.get_state() if self._is_seeded() else None
            if name == "memplan::manual_seed":
                self._seed = generator.manual_seed(int(args[0])).initial_seed()
            elif name == "memplan::set_rng_state":
                state = value_of(args[0])
                if state is not None:
                    generator.set_state(state.clone())
                self._seed = None if state is None else generator.initial_seed()
        return None

    def begin(self, generator: Any) -> None:
        """Something is drawn."""
        if generator is not None and generator.device.type == "cpu":
            with on_real_tensors():
                self.last = generator.get_state()
            self.before.setdefault(id(generator), (generator, self.last))

    def repeat(self, generator: Any) -> None:
        """The same is drawn again."""
        if generator is not None and self.last is not None:
            with on_real_tensors():
                generator.set_state(self.last)

    def lose(
        self, generator: Any, operator: Any, args: Any, kwargs: Any, results: list[torch.Tensor]
    ) -> None:
        """Something was drawn that is not worked out. Of the global generator as much is drawn here, on
        tensors of the same form."""
        import torch

        if generator is None or generator.device.type != "cpu":
            return
        if generator is not torch.default_generator:
            self.begin(generator)
            with on_real_tensors():
                self.lost[id(generator)] = generator.get_state()
            return
        self._left -= sum(leaf.numel() for leaf in results)
        if self._left < 0:
            self._seed = None
            return
        try:
            with on_real_tensors(), torch._C._DisableAutocast():
                operator(*_stand_ins(args), **_stand_ins(kwargs))
        except RuntimeError:
            self._seed = None

    def put_back(self) -> None:
        """Give all generators the states that they had before the run."""
        for generator, state in self.before.values():
            with on_real_tensors():
                generator.set_state(state)
        self.before.clear()


def _stand_ins(arguments: Any) -> Any:
    """Return `arguments` with tensors of ones."""
    import torch
    from torch.utils import _pytree as pytree

    def ones(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).fill_(1)

    return pytree.tree_map_only(torch.Tensor, ones, arguments)


def disturb() -> None:
    """Have the global generator give numbers that follow from no seed of the script's."""
    import torch

    torch.default_generator.manual_seed((torch.default_generator.initial_seed() + 1) % 2**63)
