"""The checker of graphs with copies to the host. It works from both graphs alone, in plain Python, and shares
no code with what wrote the second."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from memplan_engine.graph import PRODUCED, Graph, Op, Tensor
from memplan_engine.op_kinds.copies import ON_HOST, TO_DEVICE, TO_HOST, is_copy

MOST = 100


def check_offload(
    original: Graph,
    offloaded: Graph,
    nanoseconds: Mapping[str, int],
    bandwidth: float,
    capacity: int,
    extra: int,
) -> list[str]:
    """What is wrong with `offloaded` in place of `original`; [] when nothing is.

    Its ops without the copies are those of the original, in its order, of the same kinds; each reads and
    writes the tensors that it did, or what came back of their storages with the form that these had, after a
    copy that nothing has written behind. No more than `capacity` bytes are live, and its ops, which take
    `nanoseconds` each, wait at most `extra` ns in all for copies of `bandwidth` bytes a second.
    """
    wrong = wrong_copies(original, offloaded)
    if wrong:
        return wrong[:MOST]
    live = _most_live(offloaded)
    if live > capacity:
        wrong.append(f"{live:,} bytes are live, more than {capacity:,}")
    waited = _run(offloaded, nanoseconds, bandwidth) - sum(nanoseconds[op.name] for op in original.ops)
    if waited > extra:
        wrong.append(f"ops wait {waited:,} ns for copies, more than {extra:,}")
    return wrong


class _Values:
    """What is where while the ops of a graph run: of each storage that came back the one of the original that
    it stands for, and of each copy that is still one whose it is."""

    def __init__(self, original: Graph, offloaded: Graph) -> None:
        self.old: dict[str, Tensor] = {tensor.name: tensor for tensor in original.tensors}
        self.new: dict[str, Tensor] = {tensor.name: tensor for tensor in offloaded.tensors}
        self.sizes = {storage.name: storage.nbytes for storage in offloaded.storages}
        self.home = {storage.name: storage.name for storage in original.storages}
        """By storage of the rewritten graph the one of the original whose content it has."""
        self.now = {storage.name: storage.name for storage in original.storages}
        """By storage of the original the one that has its content now."""
        self.copies: dict[str, tuple[str, bool]] = {}
        """By what stands for a copy the storage of the original, and whether it was waited for."""

    def wrong_tensor(self, old: str, new: str, place: str) -> list[str]:
        """Whether `new` shows what `old` shows in the original."""
        was, now = self.old[old], self.new.get(new)
        if now is None or (now.shape, now.dtype, now.strides, now.offset, now.nbytes) != (
            (was.shape, was.dtype, was.strides, was.offset, was.nbytes)
        ):
            return [f"{place}: {new} has another form than {old}"]
        if now.storage != self.now[was.storage]:
            return [f"{place}: {new} is not where {old} is by then"]
        return []


def wrong_copies(original: Graph, offloaded: Graph) -> list[str]:
    """What is wrong with what the ops of `offloaded` read, as `check_offload` says; [] when nothing is."""
    own = [op for op in offloaded.ops if not is_copy(op.kind)]
    if [(op.name, op.kind) for op in own] != [(op.name, op.kind) for op in original.ops]:
        return ["other ops than those of the original, or in another order"]
    if (original.inputs, original.constants) != (offloaded.inputs, offloaded.constants):
        return ["the inputs or weights differ"]
    values, wrong = _Values(original, offloaded), []
    pending = iter(original.ops)
    for op in offloaded.ops:
        if is_copy(op.kind):
            wrong += _wrong_copy(op, values)
            continue
        twin = next(pending)
        sides = ((twin.inputs, op.inputs), (twin.mutates, op.mutates), (twin.outputs, op.outputs))
        if any(len(old) != len(new) for old, new in sides) or twin.outputs != op.outputs:
            return [*wrong, f"{op.name}: reads or makes another number of tensors, or other ones"]
        for olds, news in sides:
            for old, new in zip(olds, news, strict=True):
                wrong += values.wrong_tensor(old, new, op.name)
        written = {values.old[name].storage for name in twin.mutates}
        read = {values.old[name].storage for name in (*twin.inputs, *twin.mutates)}
        written |= {values.old[name].storage for name in twin.outputs} - read
        for handle in [each for each, (home, _) in values.copies.items() if home in written]:
            # Written behind the copy: it is no copy of that any more.
            del values.copies[handle]
    for old, new in zip(original.outputs, offloaded.outputs, strict=True):
        wrong += values.wrong_tensor(old, new, "what is returned")
    return wrong


def _wrong_copy(op: Op, values: _Values) -> list[str]:
    if op.mutates or not op.outputs:
        return [f"{op.name}: a copy that writes, or makes nothing"]
    made = {values.new[name].storage for name in op.outputs}
    if op.kind == TO_DEVICE:
        home, waited = values.copies.get(op.inputs[0], ("", False))
        if not waited or len(op.inputs) != 1 or len(made) != 1:
            return [f"{op.name}: nothing of this storage has been copied to the host by then"]
        (storage,) = made
        if storage in values.home or values.sizes[storage] != values.sizes[home]:
            return [f"{op.name}: {storage} is there already, or has other bytes than {home}"]
        values.home[storage], values.now[home] = home, storage
        return []
    read = values.new[op.inputs[0]].storage
    home = values.home.get(read, "")
    if values.now.get(home) != read or any(values.sizes[each] for each in made):
        return [f"{op.name}: copies what is not there any more, or makes bytes of the device"]
    if op.kind == TO_HOST:
        values.copies[op.outputs[0]] = home, False
    elif op.kind == ON_HOST:
        if values.copies.pop(op.inputs[-1], ("", True)) != (home, False):
            return [f"{op.name}: waits for no copy of {read}"]
        values.copies[op.outputs[0]] = home, True
    return []


def _most_live(graph: Graph) -> int:
    """Live bytes at the worst step, of what ops make: from the op that makes it to the last that touches it,
    or to the end where it is returned."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    sizes = {storage.name: storage.nbytes for storage in graph.storages if storage.role in PRODUCED}
    first: dict[str, int] = {}
    last = {home[name]: len(graph.ops) for name in graph.outputs}
    for step, op in enumerate(graph.ops):
        for name in (*op.inputs, *op.mutates, *op.outputs):
            first.setdefault(home[name], step)
            last[home[name]] = max(step, last.get(home[name], 0))
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for storage, step in first.items():
        nbytes = sizes.get(storage, 0)
        begins[step] = begins.get(step, 0) + nbytes
        ends[last[storage]] = ends.get(last[storage], 0) + nbytes
    most = live = 0
    for step in range(len(graph.ops)):
        live += begins.get(step, 0)
        most = max(most, live)
        live -= ends.get(step, 0)
    return most


def _run(graph: Graph, nanoseconds: Mapping[str, int], bandwidth: float) -> int:
    """When the last op has run, ns: ops one after another, copies of each direction one after another beside
    them, each begun no sooner than the ops before it have run."""
    home = {tensor.name: tensor.storage for tensor in graph.tensors}
    sizes = {storage.name: storage.nbytes for storage in graph.storages}
    clock = sending = coming = 0
    arrives: dict[str, int] = {}
    for op in graph.ops:
        if op.kind == TO_HOST:
            sending = max(sending, clock) + _takes(sizes[home[op.inputs[0]]], bandwidth)
            arrives[op.outputs[0]] = sending
        elif op.kind == ON_HOST:
            clock = max(clock, arrives[op.inputs[-1]])
        elif op.kind == TO_DEVICE:
            coming = max(coming, clock) + _takes(sizes[home[op.outputs[0]]], bandwidth)
            arrives |= dict.fromkeys((home[name] for name in op.outputs), coming)
        else:
            touched = (home[name] for name in (*op.inputs, *op.mutates))
            clock = max([clock, *(arrives.get(storage, 0) for storage in touched)]) + nanoseconds[op.name]
    return clock


def _takes(nbytes: int, bandwidth: float) -> int:
    """Of a copy, ns, rounded up."""
    return -(-Fraction(nbytes) * 10**9 // Fraction(bandwidth))
