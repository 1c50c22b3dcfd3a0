"""What ops read, write and make, noted as they run, on tensors that may be fake."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from memplan_engine.errors import InputError
from memplan_engine.graph import Source
from memplan_engine.recordings.observation import CPU, NO_OP
from memplan_engine.recordings.observed_flow import (
    BEFORE,
    HELD,
    Category,
    Flow,
    ObservedStorages,
    Stage,
)
from memplan_engine.recordings.stream_clock import News, StreamClock
from memplan_engine.runtime.recorder.fake_device import CurrentDevice
from memplan_engine.runtime.recorder.op_origins import Origin
from memplan_engine.torch_capture.torch_operators import arguments_of, gives_views, written_values
from memplan_engine.torch_capture.torch_storages import (
    GIVES_BACK_NEW,
    StorageWatch,
    operator_name,
    tensors_in,
)
from memplan_engine.torch_capture.training.torch_origins import who_makes
from memplan_engine.units import count_of

COLLECTIVES = ("c10d::", "_c10d_functional::", "c10d_functional::", "fsdp::split_with_sizes_copy")
BETWEEN_RANKS = {
    "all_gather": Category.ALL_GATHER,
    "allgather": Category.ALL_GATHER,
    # What FSDP copies into is what it has gathered, a weight after the other.
    "split_with_sizes_copy": Category.ALL_GATHER,
    "reduce_scatter": Category.REDUCE_SCATTER,
    "all_reduce": Category.ALL_REDUCE,
    "allreduce": Category.ALL_REDUCE,
    "recv": Category.POINT_TO_POINT,
}
"""By a part of the operator's name, what its buffers are for."""
RECORD_STREAM, COPIES = "aten::record_stream", ("aten::_to_copy", "aten::copy_")
ASKS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""What operators are tagged as that wait for a value."""
KEEPS = ("send", "wait_tensor", "barrier")
"""Operators whose arguments stay what they are."""
_NOTHING: tuple[int, ...] = ()


class StorageTable(StorageWatch):
    """Every storage that ops touch by a number, with what became of it. `op` is the op that runs, or ran
    last."""

    def __init__(self, when_freed: Callable[[int], None] = lambda number: None) -> None:
        super().__init__()
        self.op, self.when_freed = NO_OP, when_freed
        self.names: list[str] = []
        self.nbytes, self.maker, self.released = array("q"), array("q"), array("q")
        self.device = array("q")
        self.categories: list[Category] = []
        self.shapes: list[tuple[int, ...]] = []
        self.dtypes: list[str] = []
        self._numbers: dict[int, int] = {}
        self._resizes = False

    def given(self, name: str, tensor: torch.Tensor, category: Category) -> None:
        """A tensor that is there before the run, called `name`."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._refs:
            self._keep_as(self._add(storage, tensor, BEFORE, category, name), storage)

    def gave_back(self, operator: Any, tensor: torch.Tensor, args: Any, kwargs: Any) -> bool:
        """As ever. What is real among fake tensors (a model that was made before the run) is there for them
        as a twin, of which a view may be the first that is seen."""
        if super().gave_back(operator, tensor, args, kwargs):
            return True
        mixed = isinstance(tensor, FakeTensor) and gives_views(operator)
        return mixed and any(not isinstance(each, FakeTensor) for each in tensors_in((args, kwargs)))

    def allocated(self, storage: torch.UntypedStorage, shown: torch.Tensor) -> int:
        """Its number."""
        number = self._numbers[storage._cdata] = self._add(storage, shown, self.op, Category.TEMPORARY)
        return number

    def freed(self, entry: int) -> None:
        """It goes after the op that runs."""
        # What is resized goes before the op that does it: its content moves on.
        self.released[entry] = max(self.op - self._resizes, self.maker[entry])
        self.when_freed(entry)

    def _freed(self, ref: Any) -> None:
        # Called by torch when a storage is gone, and with the same reference when it is resized.
        self._resizes = ref() is not None
        super()._freed(ref)
        self._resizes = False

    def _keep_as(self, number: int, storage: torch.UntypedStorage) -> None:
        self._keep(storage)
        self._numbers[storage._cdata] = number
        self._entries[storage._cdata] = (storage.nbytes(), number)

    def _add(
        self,
        storage: torch.UntypedStorage,
        shown: torch.Tensor,
        maker: int,
        category: Category,
        name: str = "",
    ) -> int:
        self.names.append(name)
        self.nbytes.append(0 if shown.device.type == "meta" else storage.nbytes())
        self.maker.append(maker)
        self.released.append(HELD)
        self.device.append(device_number(shown.device))
        self.categories.append(category)
        self.shapes.append(tuple(shown.shape))
        self.dtypes.append(str(shown.dtype).removeprefix("torch."))
        return len(self.names) - 1

    def grown(self, storage: torch.UntypedStorage) -> int | None:
        """The new number of a storage that has another size now; None where nobody knows it."""
        key = storage._cdata
        if key not in self._refs or key not in self._numbers:
            return None
        old = self._numbers[key]
        # Before the op: its content moves on.
        self.released[old] = max(self.op - 1, self.maker[old])
        self._keep_as(self._copy(old, storage.nbytes()), storage)
        return self._numbers[key]

    def _copy(self, number: int, nbytes: int) -> int:
        self.names.append(self.names[number])
        self.nbytes.append(nbytes)
        self.maker.append(self.op)
        self.released.append(HELD)
        self.device.append(self.device[number])
        self.categories.append(self.categories[number])
        self.shapes.append(self.shapes[number])
        self.dtypes.append(self.dtypes[number])
        return len(self.names) - 1

    def number_of(self, tensor: torch.Tensor) -> int:
        """The number of the storage that `tensor` shows; one that nobody has seen was there before."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if not (key in self._refs and key in self._numbers):
            self._keep_as(self._add(storage, tensor, BEFORE, Category.UNKNOWN), storage)
        return self._numbers[key]

    def known(self, storage: int) -> int | None:
        """The number of the storage at an address of C++'s; None where nobody has seen it."""
        return self._numbers.get(storage) if storage in self._refs else None

    def numbers_in(self, value: Any) -> set[int]:
        """Those of the tensors in `value`."""
        return {self.number_of(tensor) for tensor in tensors_in(value)}

    def mark(self, tensors: Iterable[Any], category: Category) -> None:
        """Say what the storages of `tensors` are for, where they are known."""
        for tensor in tensors_in(list(tensors)):
            number = self._numbers.get(tensor.untyped_storage()._cdata)
            if number is not None and tensor.untyped_storage()._cdata in self._refs:
                self.categories[number] = category

    def recategorize(self, old: Category, new: Category) -> None:
        """Say of all that is `old` that it is `new`."""
        self.categories = [new if each is old else each for each in self.categories]

    def adopt(self, name: str, model: torch.nn.Module) -> None:
        """Say of the weights and buffers of `model`, which the run has made, what they are."""
        for path, whole in (*model.named_parameters(prefix=name), *model.named_buffers(prefix=name)):
            for tensor in tensors_in(_unwrapped(whole)):
                number = self.number_of(tensor)
                self.categories[number] = Category.WEIGHT
                self.names[number] = self.names[number] or path

    def close(self) -> None:
        """As ever."""
        super().close()
        self._numbers.clear()


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """What `torch.func` has wrapped in `tensor`, which then has no storage, in the place of a weight."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return _unwrapped(torch._C._functorch.get_unwrapped(tensor)) if wrapped else tensor


class FlowLog:
    """The columns of `Flow`, an op after the other, of a run on `on`."""

    def __init__(self, on: CurrentDevice) -> None:
        self.table, self.on = StorageTable(self._freed), on
        self.clock = StreamClock()
        self._users: dict[int, set[tuple[int, int]]] = {}
        self.reads: list[tuple[int, ...]] = []
        self.writes: list[tuple[int, ...]] = []
        self.makes: list[tuple[int, ...]] = []
        self.origins: list[Origin] = []
        self.device, self.stream = array("q"), array("q")

    def begin(self, number: int, origin: Origin) -> None:
        """The op `number` begins."""
        self._listen()
        self.table.op = number
        self.origins.append(origin)
        self.stream.append(0)
        for column in (self.reads, self.writes, self.makes):
            column.append(_NOTHING)
        self.device.append(CPU)

    def returned(self, value: Any, operator: Any, args: Any, kwargs: Any) -> None:
        """It has given `value` for these arguments."""
        table = self.table
        if operator_name(operator) in GIVES_BACK_NEW:
            args, kwargs = (), {}
        # What is seen as an argument only was there before, and stands before what is made.
        table.numbers_in((args, kwargs))
        first = len(table.names)
        table.returned(value, args, kwargs, operator)
        made = tuple(range(first, len(table.names)))
        read = table.numbers_in((args, kwargs)).difference(made)
        written = table.numbers_in(list(written_values(operator, args, kwargs))).difference(made)
        self.reads[-1], self.writes[-1] = tuple(sorted(read)), tuple(sorted(written))
        self.makes[-1] = made
        shown = next(tensors_in((value, args, kwargs)), None)
        self.device[-1] = device = CPU if shown is None else device_number(shown.device)
        if device >= self.on.cards:
            found = f"the device cuda:{device} {who_makes()}, and {count_of(self.on.cards, 'card')}"
            raise InputError("fake run", "", found, "as many as are used: --cards, or cards=")
        if device != CPU:
            self.stream[-1] = self.on.stream(device)
            self.clock.runs(table.op, (device, self.stream[-1]))
        if self.on.is_cuda:
            self._synchronizes(operator, value, args, kwargs)
        if operator_name(operator).startswith(COLLECTIVES):
            self._between_ranks(operator_name(operator), made, args, kwargs)

    def _between_ranks(self, name: str, made: tuple[int, ...], args: Any, kwargs: Any) -> None:
        """Say of the buffers of a collective which it is: of what it makes, and, where it fills tensors that
        it is given, of these."""
        kind = next((kind for part, kind in BETWEEN_RANKS.items() if part in name), Category.COMMUNICATION)
        given: set[int] = set()
        if not name.startswith(("_c10d_functional::", "c10d_functional::")) and not name.endswith(KEEPS):
            given = self.table.numbers_in((args, kwargs))
        if name.startswith("fsdp::"):
            # What is copied from has a kind already.
            given = self.table.numbers_in(kwargs.get("out", args[3:]))
        for number in (*made, *given):
            if self.table.categories[number] is Category.TEMPORARY:
                self.table.categories[number] = kind

    def _synchronizes(self, operator: Any, value: Any, args: Any, kwargs: Any) -> None:
        """What `operator` has the host wait for, or says of a stream."""
        if operator_name(operator) == RECORD_STREAM:
            self._uses(self.table.number_of(args[0]), (args[1].device_index, args[1].stream_id))
        seen = list(tensors_in((value, args, kwargs)))
        copies = operator_name(operator) in COPIES and any(each.device.type == "cpu" for each in seen)
        if (copies and not _non_blocking(operator, args, kwargs)) or ASKS & set(operator.tags):
            self._listen()
            for card in {device_number(each.device) for each in seen} - {CPU}:
                self.clock.synchronizes(self.table.op, (card, self.on.stream(card)))

    def _uses(self, number: int, stream: tuple[int, int]) -> None:
        """A storage is used by a stream, which may be its own."""
        maker = self.table.maker[number]
        if maker != BEFORE and (self.table.device[number], self.stream[maker]) != stream:
            self._users.setdefault(number, set()).add(stream)

    def _listen(self) -> None:
        """Hear what was asked of streams since."""
        news = self.on.news()
        for kind, storage, *stream in news:
            if kind == News.USED and (number := self.table.known(storage)) is not None:
                self._uses(number, (stream[0], stream[1]))
        self.clock.hears(self.table.op, news)

    def _freed(self, number: int) -> None:
        """A storage is gone."""
        if self.on.is_cuda:
            self._listen()
        if number in self._users:
            self.clock.frees(number, self.table.op, self._users[number])

    def waits(self) -> tuple[tuple[int, int], ...]:
        """For `Flow.waits`."""
        late = [(number, op) for number, op in self.clock.done.items() if op > self.table.released[number]]
        return tuple(sorted([*late, *((number, HELD) for number in self.clock.waiting())]))

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage that is known has another size from the op that runs on."""
        number = self.table.grown(storage)
        if number is not None:
            self.makes[-1] = (number,)

    def finished(self, sources: tuple[Source, ...], assumed: tuple[str, ...], compiled: bool = False) -> Flow:
        """All that was noted."""
        stages = list(settled_stages([origin.stage for origin in self.origins], self._modules()))
        table = self.table
        columns = (table.nbytes, table.maker, table.released, table.device)
        nbytes, maker, released, device = (np.array(column, dtype=np.int64) for column in columns)
        categories = tuple(self._categories(stages))
        storages = ObservedStorages(
            tuple(table.names),
            nbytes,
            categories,
            maker,
            released,
            tuple(table.shapes),
            tuple(table.dtypes),
            device,
        )
        return Flow(
            tuple(self.reads),
            tuple(self.writes),
            tuple(self.makes),
            tuple(stages),
            tuple(self._modules_with_optimizer(stages)),
            np.array([origin.source for origin in self.origins], dtype=np.int64),
            sources,
            np.array(self.device, dtype=np.int64),
            np.array(self.stream, dtype=np.int64),
            storages,
            assumed=assumed,
            waits=self.waits(),
            compiled=compiled,
        )

    def _modules(self) -> list[str]:
        return [origin.module for origin in self.origins]

    def _modules_with_optimizer(self, stages: Sequence[Stage]) -> Iterator[str]:
        """Of each op its module; an op of the optimizer belongs to the module whose parameter it works on,
        where it is one."""
        owner: dict[int, str] = {
            number: name.rpartition(".")[0]
            for number, (name, category) in enumerate(
                zip(self.table.names, self.table.categories, strict=True)
            )
            if category is Category.WEIGHT and name
        }
        for number, (stage, origin) in enumerate(zip(stages, self.origins, strict=True)):
            module = origin.module
            if stage is Stage.OPTIMIZER:
                touched = (*self.reads[number], *self.writes[number])
                modules = {owner[each] for each in touched if each in owner}
                module = modules.pop() if len(modules) == 1 else ""
            for each in self.makes[number]:
                owner.setdefault(each, module)
            yield module

    def _categories(self, stages: Sequence[Stage]) -> Iterator[Category]:
        """Of each storage its category; what a forward pass makes is an activation where it is read in a
        backward pass, or where there is none."""
        passes = (Stage.FORWARD, Stage.RECOMPUTE)
        trains = Stage.BACKWARD in stages
        saved: set[int] = set()
        for stage, read in zip(stages, self.reads, strict=True):
            if stage is Stage.BACKWARD:
                saved.update(read)
        for number, (category, maker) in enumerate(zip(self.table.categories, self.table.maker, strict=True)):
            made = category is Category.TEMPORARY and maker != BEFORE and stages[maker] in passes
            yield Category.ACTIVATION if made and (number in saved or not trains) else category


def settled_stages(stages: Sequence[Stage], modules: Sequence[str]) -> Iterator[Stage]:
    """`stages`, in which what comes between a backward pass and the optimizer and belongs to no module
    (clipping) belongs to the optimizer."""
    ahead: list[Stage] = []
    following = Stage.FORWARD
    for stage, module in zip(reversed(stages), reversed(modules), strict=True):
        if stage is not Stage.FORWARD or module:
            following = stage
        ahead.append(following)
    before = Stage.FORWARD
    for stage, module, after in zip(stages, modules, reversed(ahead), strict=True):
        if stage is not Stage.FORWARD or module:
            before = stage
        between = stage is Stage.FORWARD and not module
        clips = between and before is Stage.BACKWARD and after is Stage.OPTIMIZER
        yield Stage.OPTIMIZER if clips else stage


def _non_blocking(operator: Any, args: Any, kwargs: Any) -> bool:
    """Whether a copy is one for which the host does not wait."""
    arguments = arguments_of(operator, args, kwargs)
    return bool(arguments.get("non_blocking", False))


def device_number(device: torch.device) -> int:
    """The number of a device; that of the CPU, and of meta tensors, which stand for it, is CPU."""
    return CPU if device.type in ("cpu", "meta") else device.index or 0
