"""`memplan snapshot`: what an allocator's recording cost, and what was live when memory ran out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from memplan_engine.cli.app import app
from memplan_engine.cli.options import ALL_ROWS, AS_JSON, SECONDS, SEED, STRATEGY, THREADS, make_limits
from memplan_engine.cli.output import check_targets, show, tell
from memplan_engine.cli.progress import reading, solve_in_sight
from memplan_engine.errors import InputError
from memplan_engine.files import load_recording, write
from memplan_engine.formats.allocator_files.trace_counters import write_trace_counters
from memplan_engine.recordings.allocator_recording import Selection, choose_recording
from memplan_engine.recordings.cost import cost_of
from memplan_engine.recordings.recorded_problem import recorded_plan
from memplan_engine.reporters.recording_tables import cost_summary, cost_tables


@app.command()
def snapshot(
    file: Annotated[Path, typer.Argument(help="CUDA memory snapshot, or profiler trace", show_default=False)],
    card: Annotated[
        int | None,
        typer.Option(help="Which card of the file, -1 for the CPU (default: the one with the most bytes)."),
    ] = None,
    stream: Annotated[int | None, typer.Option(help="Only allocations of this stream.")] = None,
    pool: Annotated[str | None, typer.Option(help="Only this memory pool, such as 0:1.")] = None,
    strategy: STRATEGY = "auto",
    seconds: SECONDS = None,
    seed: SEED = 0,
    threads: THREADS = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the recorded placement (.json or .csv).")
    ] = None,
    counters: Annotated[
        Path | None,
        typer.Option(help="Write the trace with live bytes as counters, for Perfetto (.json or .json.gz)."),
    ] = None,
    as_json: AS_JSON = False,
    all_rows: ALL_ROWS = False,
) -> None:
    """Show an allocator recording: peak, fragmentation, out-of-memory events, and what a plan needs."""
    selection = Selection(card, stream, _pool(pool))
    limits = make_limits(strategy, seconds, seed, threads)
    check_targets((".json", ".csv"), file, output)
    check_targets((".json", ".gz"), file, counters)
    with reading(file) as progress:
        recorded = load_recording(file, progress)
    recording = choose_recording(recorded, selection)
    if counters:
        write_trace_counters(recorded, file, counters)
    cost, _ = solve_in_sight(lambda: cost_of(recording, strategy, limits), limits)
    if output:
        write(recorded_plan(recording, cost.problem), output)
    show(as_json, lambda: cost_summary(recorded, cost), lambda: cost_tables(recorded, cost, all_rows))
    if cost.failures:
        # What other settings of the allocator would reserve.
        tell(f"next: memplan allocator {shlex.quote(str(file))}")


def _pool(text: str | None) -> tuple[int, int] | None:
    """ "0:1" as (0, 1); raises InputError for what is none."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,18}):([0-9]{1,18})", text, re.ASCII)
    if not match:
        raise InputError("--pool", "", repr(text), "two numbers, such as 0:1")
    return int(match[1]), int(match[2])
