"""Tensors that say which tensor they are a view of: the storage at the end of the chain."""

from __future__ import annotations

from collections.abc import Sequence

from memplan_engine.errors import InputError


def storages_of(entries: Sequence[tuple[str, str | None, str | None]], source: str) -> list[str]:
    """The storage of each tensor, given (name, storage, view_of) of all of them.

    A view lives in the storage of its base, through views of views; any other tensor in the storage it
    names, or in one of its own name.

    Raises
    ------
    InputError: a view of nothing, of itself through others, or of a tensor in another storage than it names.
    """
    stated = {name: storage for name, storage, _ in entries}
    base = {name: view_of for name, _, view_of in entries if view_of is not None}
    homes: dict[str, str] = {}
    for name in stated:
        chain: dict[str, None] = {}
        at = name
        while at in base and at not in homes:
            if at in chain:
                names = list(chain)
                loop = " → ".join([*names[names.index(at) :], at])
                raise InputError(source, f"tensor {name!r}", f"views in a loop: {loop}", "views that end")
            chain[at] = None
            at = base[at]
        if at not in stated:
            *_, view = chain
            raise InputError(source, f"tensor {view!r}", f"a view of {at!r}", "a tensor of the graph")
        home = homes.get(at) or stated[at] or at
        homes |= dict.fromkeys((*chain, at), home)
    for name, storage, view_of in entries:
        if view_of is not None and storage not in (None, homes[name]):
            expected = f"{homes[name]!r}, that of {view_of!r}"
            raise InputError(source, f"tensor {name!r}", f"storage {storage!r}", expected)
    return [homes[name] for name, _, _ in entries]
