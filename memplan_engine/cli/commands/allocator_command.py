"""`memplan allocator`: what PyTorch's caching allocator would reserve, and whether that fits on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.accelerators.presets import PRESETS, accelerator
from memplan_engine.allocator.answers import three_answers
from memplan_engine.allocator.settings import parse_settings
from memplan_engine.allocator.simulated_recording import simulated_recording
from memplan_engine.cli.app import app
from memplan_engine.cli.options import AS_JSON
from memplan_engine.cli.output import check_targets, show
from memplan_engine.cli.progress import reading
from memplan_engine.errors import InputError
from memplan_engine.files import load_recording, write
from memplan_engine.formats.memplan_json.observation_file import is_observation, load_observation
from memplan_engine.formats.read_limits import read_head
from memplan_engine.recordings.allocator_recording import Recording, Selection, choose_recording
from memplan_engine.recordings.observation import Observation
from memplan_engine.recordings.recorded_problem import recorded_plan
from memplan_engine.reporters.allocator.answer_tables import answers_summary, answers_tables
from memplan_engine.units import parse_bytes
from memplan_engine.verdict import EXIT_CODES

HEAD_BYTES = 4096
MOST_COMMUNICATORS = 10_000


@app.command()
def allocator(
    file: Annotated[
        Path,
        typer.Argument(help="An observation, CUDA memory snapshot, or profiler trace", show_default=False),
    ],
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            "-s",
            help="A setting as in PYTORCH_CUDA_ALLOC_CONF, such as expandable_segments:True. Repeatable.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help=f"Does it fit on this device? One of {', '.join(PRESETS)}.")
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(help="Memory of the device, such as 24GiB, instead of the preset's.")
    ] = None,
    headroom: Annotated[str, typer.Option(help="Memory that has to stay free, such as 2GiB.")] = "0",
    communicators: Annotated[int, typer.Option(min=0, help="NCCL communicators of the process.")] = 0,
    card: Annotated[
        int | None,
        typer.Option(help="Which card of the file, -1 for the CPU (default: the one with the most bytes)."),
    ] = None,
    what_if: Annotated[bool, typer.Option(help="Try other settings, too.")] = True,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the simulated placement (.json or .csv).")
    ] = None,
    as_json: AS_JSON = False,
) -> None:
    """Predict what PyTorch's caching allocator reserves for FILE: under which settings, on which device.

    Where FILE recorded an out-of-memory: which settings would have met the request that failed.

    Exit code with --device or --capacity: 0 fits, 1 does not, 3 undecided: depends on what else is held.
    """
    settings = None if setting is None else parse_settings(",".join(setting), "--setting")
    gpu = None if device is None else accelerator(device)
    nbytes = None if capacity is None else parse_bytes(capacity, "--capacity")
    if communicators > MOST_COMMUNICATORS:
        raise InputError("--communicators", "", f"{communicators:,}", f"at most {MOST_COMMUNICATORS:,}")
    check_targets((".json", ".csv"), file, output)
    answers = three_answers(
        _source(file, card),
        settings,
        gpu=gpu,
        capacity=nbytes,
        headroom=parse_bytes(headroom, "--headroom"),
        communicators=communicators,
        index=card,
    )
    if output:
        write(recorded_plan(simulated_recording(answers.chosen.run)), output)
    show(as_json, lambda: answers_summary(answers, what_if), lambda: answers_tables(answers, what_if))
    if answers.chosen.verdict is not None and (gpu or nbytes is not None):
        raise typer.Exit(EXIT_CODES[answers.chosen.verdict])


def _source(file: Path, card: int | None) -> Recording | Observation:
    if is_observation(read_head(file, HEAD_BYTES)):
        return load_observation(file)
    with reading(file) as progress:
        recorded = load_recording(file, progress)
    return choose_recording(recorded, Selection(card))
