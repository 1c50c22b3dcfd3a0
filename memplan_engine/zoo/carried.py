"""Tasks, answers and points as JSON: between processes of one machine, and in the cache."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Generic, TypeVar

from memplan_engine.history.history_values import NewPoint
from memplan_engine.zoo.zoo_values import ZooAnswer, ZooGraph, ZooTask

Kind = TypeVar("Kind")


class Carried(Generic[Kind]):
    """Values of `kind` as JSON and back. Its fields are checked; pydantic is imported when it is used."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter

        return TypeAdapter(self.kind)

    def written(self, value: Kind) -> bytes:
        """`value` as JSON in UTF-8."""
        return bytes(self._adapter.dump_json(value))

    def read(self, data: bytes) -> Kind | None:
        """The value that `data` says, None where it says none."""
        from pydantic import ValidationError

        try:
            value: Kind = self._adapter.validate_json(data)
        except ValidationError:
            return None
        return value


TASK: Carried[ZooTask] = Carried(ZooTask)
ANSWER: Carried[ZooAnswer] = Carried(ZooAnswer)
GRAPHS: Carried[tuple[ZooGraph, ...]] = Carried(tuple[ZooGraph, ...])
POINT: Carried[NewPoint] = Carried(NewPoint)
