"""`memplan devices`: every rank of a distributed run, and whether it fits on its device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.accelerators.presets import PRESETS, Accelerator, accelerator
from memplan_engine.allocator.settings import parse_settings
from memplan_engine.cli.app import app
from memplan_engine.cli.options import AS_JSON
from memplan_engine.cli.output import show
from memplan_engine.cli.progress import stages
from memplan_engine.devices.rank_answers import device_answers
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.ranks_folder import load_ranks, write_ranks
from memplan_engine.recordings.rank_run import RankRun
from memplan_engine.reporters.devices.device_tables import devices_summary, devices_tables
from memplan_engine.units import parse_bytes

NOT_NVIDIA = "sm90"
"""Whose operators are taken for a card that is not CUDA's."""


@app.command()
def devices(
    script: Annotated[
        str,
        typer.Argument(help="A Python script for torchrun, or a folder that -o wrote", show_default=False),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the script, after --.", show_default=False)
    ] = None,
    world: Annotated[int | None, typer.Option(help="How many ranks there are.", show_default=False)] = None,
    device: Annotated[
        str, typer.Option(help=f"Each rank's device: one of {', '.join(PRESETS)}.")
    ] = "h100-80",
    ranks: Annotated[
        str, typer.Option(help="Which ranks: distinct (one of those that are alike), all, or 0,7.")
    ] = "distinct",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", "-s", help="A setting of the allocator. May be repeated.", show_default=False
        ),
    ] = None,
    headroom: Annotated[str, typer.Option(help="How much has to stay free, such as 2GiB.")] = "0",
    seconds: Annotated[
        float | None, typer.Option(help="Time limit for each rank (default: 600).", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Save what was observed to this folder.")
    ] = None,
    as_json: AS_JSON = False,
) -> None:
    """Run SCRIPT as every rank of a distributed run, on fake tensors: what each holds, and whether it fits.

    No GPU and no other machine is needed. The script is run unchanged, for three training steps, once for
    each rank that differs from the others. A folder that -o wrote is judged again for other devices and
    settings, without running anything.
    """
    gpu = accelerator(device)
    settings = parse_settings(",".join(setting or ()), "--setting")
    free = parse_bytes(headroom, "--headroom")
    if Path(script).is_dir():
        if world is not None or arguments or seconds is not None or output is not None:
            raise InputError(script, "", "options of a run", "a folder alone: what was run is in it")
        runs = load_ranks(Path(script))
    else:
        runs = _observed(script, arguments or [], world, gpu, ranks, seconds, output)
    answers = device_answers(runs, gpu, settings, headroom=free)
    show(as_json, lambda: devices_summary(answers, gpu), lambda: devices_tables(answers, gpu))


def _observed(
    script: str,
    arguments: list[str],
    world: int | None,
    gpu: Accelerator,
    ranks: str,
    seconds: float | None,
    output: Path | None,
) -> tuple[RankRun, ...]:
    from memplan_engine.torch_capture.torch_fake import require_torch

    require_torch("running ranks")
    from memplan_engine.runtime.ranks.rank_runs import observe_ranks
    from memplan_engine.runtime.recorder.script_run import SECONDS

    if world is None:
        raise InputError("--world", "", "none", "the number of ranks, as --world 8")
    if output is not None and not output.resolve().parent.is_dir():
        raise InputError(str(output), "", "a folder that does not exist", "a place in an existing folder")
    arch = NOT_NVIDIA if gpu.capability is None else gpu.architecture
    limit = SECONDS if seconds is None else seconds
    with stages() as tell:
        runs = observe_ranks(
            script,
            arguments,
            world_size=world,
            ranks=ranks,
            device="cuda",
            arch=arch,
            seconds=limit,
            tell=tell,
        )
    if output is not None:
        write_ranks(runs, output)
    return runs
