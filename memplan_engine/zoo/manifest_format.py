"""The tables and keys of a manifest, as TOML gives them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

AxisValue = StrictBool | StrictInt | StrictFloat | StrictStr
Axes = dict[str, list[AxisValue]]
Combination = dict[str, AxisValue | list[AxisValue]]
"""Of axes a value each, or several: what is left out."""


class Part(BaseModel):
    """A table: no unknown keys, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ModelEntry(Part):
    """[[models]]: where the graphs come from, and what of the whole manifest is another for this one."""

    name: Annotated[str, Field(min_length=1)]
    factory: str = ""
    file: str = ""
    script: str = ""
    arguments: list[str] = []
    world: Annotated[int, Field(ge=1)] = 1
    training: Literal["inference", "step", "joint"] = "inference"
    optimizer: Literal["sgd", "adam", "adamw"] | None = None
    foreach: bool | None = None
    accumulate: int | None = None
    clip_grad_norm: float | None = None
    gradients: Literal["held", "freed"] | None = None
    partition: Literal["default", "min_cut"] | None = None
    functional: bool | None = None
    axes: Axes = {}
    exclude: list[Combination] = []
    strategies: list[str] | None = None
    options: dict[str, Any] = {}


class ManifestFile(Part):
    """The whole file."""

    project: str = ""
    capacity: str | int | None = None
    strategies: Annotated[list[str], Field(min_length=1)] = ["auto"]
    axes: Axes = {}
    exclude: list[Combination] = []
    options: dict[str, Any] = {}
    models: Annotated[list[ModelEntry], Field(min_length=1)]


OF_STEP = ("optimizer", "foreach", "accumulate", "clip_grad_norm", "gradients")
"""Keys that only `training = "step"` takes."""
SETTINGS = ("training", *OF_STEP, "partition", "functional", "world")
"""Keys of a model that an axis may have for its name, and then sets."""
