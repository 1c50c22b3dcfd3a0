"""`memplan devices`: every rank of a distributed run, and whether it fits on its device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from memplan_engine.accelerators.presets import PRESETS, USUAL, Accelerator, accelerator, operators_of
from memplan_engine.allocator.settings import parse_settings
from memplan_engine.cli.app import app
from memplan_engine.cli.commands.devices_sweep import Judge, check_place, sweep_grid
from memplan_engine.cli.options import AS_JSON
from memplan_engine.cli.output import show
from memplan_engine.cli.progress import stages
from memplan_engine.devices.inference_answers import BLOCK_TOKENS, inference_answer
from memplan_engine.devices.rank_answers import device_answers
from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.ranks_folder import load_ranks, write_ranks
from memplan_engine.formats.memplan_json.sweep_folder import is_sweep, load_sweep
from memplan_engine.recordings.rank_run import RankRun
from memplan_engine.reporters.devices.device_tables import devices_summary, devices_tables
from memplan_engine.reporters.devices.inference_tables import inference_summary, inference_tables
from memplan_engine.units import parse_bytes

TOKENS = 2048
"""Of each prompt, where nobody says how many: a pass of as many is what servers take at a time at least
(vLLM's max_num_batched_tokens)."""


SCRIPT = Annotated[
    str | None,
    typer.Argument(
        help="A Python script for torchrun, package.module:factory of a model to serve, or a folder that "
        "-o wrote.",
        show_default=False,
    ),
]
ARGUMENTS = Annotated[
    list[str] | None, typer.Argument(help="Arguments of the script, after --.", show_default=False)
]
WORLD = Annotated[int | None, typer.Option(help="Number of ranks.", show_default=False)]
DEVICE = Annotated[
    str | None,
    typer.Option(
        help=f"Each rank's device: one of {', '.join(PRESETS)} (default: {USUAL}, or that of the grid).",
        show_default=False,
    ),
]
RANKS = Annotated[
    str, typer.Option(help="Which ranks: distinct (one of each kind), all, or a list such as 0,7.")
]
SETTING = Annotated[
    list[str] | None,
    typer.Option("--setting", "-s", help="As in PYTORCH_CUDA_ALLOC_CONF. Repeatable.", show_default=False),
]
HEADROOM = Annotated[str, typer.Option(help="Memory that has to stay free, such as 2GiB.")]
SECONDS_A_RANK = Annotated[
    float | None, typer.Option(help="Time limit for each rank (default: 600).", show_default=False)
]
SWEEP = Annotated[
    Path | None,
    typer.Option(
        help="Go through the configurations of this grid (TOML); -o keeps each.", show_default=False
    ),
]
JOBS = Annotated[int, typer.Option(help="How many configurations of a grid run at a time.", min=1)]
BATCH = Annotated[
    int | None, typer.Option(help="Sequences of a model to serve (default: 1).", show_default=False)
]
CONTEXT = Annotated[
    int | None, typer.Option(help="Tokens of each prompt (default: 2048).", show_default=False)
]
BLOCK = Annotated[int, typer.Option(help="Tokens of a block of the KV cache.")]
UTILIZATION = Annotated[float, typer.Option(help="The part of the device's bytes that a server may use.")]
OUTPUT = Annotated[Path | None, typer.Option("-o", "--output", help="Save what was observed to this folder.")]


@app.command()
def devices(
    script: SCRIPT = None,
    arguments: ARGUMENTS = None,
    world: WORLD = None,
    device: DEVICE = None,
    ranks: RANKS = "distinct",
    setting: SETTING = None,
    headroom: HEADROOM = "0",
    seconds: SECONDS_A_RANK = None,
    sweep: SWEEP = None,
    jobs: JOBS = 1,
    batch: BATCH = None,
    context: CONTEXT = None,
    block: BLOCK = BLOCK_TOKENS,
    utilization: UTILIZATION = 1.0,
    output: OUTPUT = None,
    as_json: AS_JSON = False,
) -> None:
    """Run SCRIPT as every rank of a distributed run, on fake tensors: what each holds, and whether it fits.

    No GPU and no other machine is needed. The script is run unchanged, for three training steps, once for
    each rank that differs from the others. A folder that -o wrote is judged again for other devices and
    settings, without running anything. --sweep does it for each configuration of a grid.

    Of a causal language model to serve, named by a factory as of `memplan capture`, prefill and one step of
    decode are run: what they leave to the KV cache, in blocks.
    """
    settings = parse_settings(",".join(setting or ()), "--setting")
    judge = Judge(settings, parse_bytes(headroom, "--headroom"), device, as_json)
    served = Served(batch, context, block, utilization)
    if sweep is not None:
        if script is not None or world is not None or arguments or ranks != "distinct":
            raise InputError("--sweep", "", "a script and its options", "a grid alone, which names them")
        sweep_grid(sweep, output, jobs, seconds, judge)
    elif jobs != 1:
        raise InputError("--jobs", "", str(jobs), "--sweep, whose configurations it is of")
    else:
        _judge(_Run(script, arguments or [], world, ranks, seconds, output, served), judge)


@dataclass(frozen=True)
class Served:
    """How a model is served, and how what is left is cut into blocks of the KV cache."""

    batch: int | None
    context: int | None
    block: int
    utilization: float


@dataclass(frozen=True)
class _Run:
    """What is to be run, or a folder with what was."""

    script: str | None
    arguments: list[str]
    world: int | None
    ranks: str
    seconds: float | None
    output: Path | None
    served: Served

    @property
    def is_model(self) -> bool:
        """Whether it is the factory of a model."""
        return self.script is not None and ":" in self.script and not Path(self.script).exists()

    def folder(self) -> Path | None:
        """Where what was run lies; None for a script.

        Raises
        ------
        InputError: neither, or a folder with options of a run.
        """
        if self.script is None:
            raise InputError("SCRIPT", "", "none", "a Python script, a folder that -o wrote, or --sweep GRID")
        if not self.is_model and any(each is not None for each in (self.served.batch, self.served.context)):
            raise InputError(self.script, "", "--batch or --context", "a model to serve, as model.py:factory")
        if not Path(self.script).is_dir():
            return None
        if self.arguments or any(each is not None for each in (self.world, self.seconds, self.output)):
            raise InputError(self.script, "", "options of a run", "a folder alone: what was run is in it")
        return Path(self.script)

    def observed(self, gpu: Accelerator) -> tuple[RankRun, ...]:
        """Run it, and save what was observed."""
        from memplan_engine.torch_capture.torch_fake import look_for_torch

        look_for_torch("running ranks")
        from memplan_engine.runtime.ranks.rank_runs import observe_ranks
        from memplan_engine.runtime.scripts.script_run import SECONDS
        from memplan_engine.runtime.serving.served_ranks import observe_served

        if self.world is None and not self.is_model:
            raise InputError("--world", "", "none", "the number of ranks, as --world 8")
        if self.output is not None:
            check_place(self.output)
        assert self.script is not None
        with stages() as tell:
            how: dict[str, Any] = {
                "world_size": 1 if self.world is None else self.world,
                "ranks": self.ranks,
                "arch": operators_of(gpu),
                "seconds": SECONDS if self.seconds is None else self.seconds,
                "tell": tell,
            }
            if self.is_model:
                if self.arguments:
                    raise InputError(self.script, "", "arguments", "a factory, which takes none")
                batch, context = self.served.batch, self.served.context
                batch, context = (1 if batch is None else batch), (TOKENS if context is None else context)
                runs = observe_served(self.script, batch=batch, context=context, **how)
            else:
                runs = observe_ranks(self.script, self.arguments, device="cuda", **how)
        if self.output is not None:
            write_ranks(runs, self.output)
        return runs


def _judge(run: _Run, judge: Judge) -> None:
    folder = run.folder()
    if folder is not None and is_sweep(folder):
        judge.show(load_sweep(folder), "", complete=True)
        return
    gpu = accelerator(USUAL if judge.device is None else judge.device)
    runs = run.observed(gpu) if folder is None else load_ranks(folder)
    answers = device_answers(runs, gpu, judge.settings, headroom=judge.headroom)
    cut: dict[str, Any] = {"utilization": run.served.utilization, "block_tokens": run.served.block}
    served = inference_answer(runs, gpu, judge.settings, headroom=judge.headroom, **cut)
    if served is None:
        show(judge.as_json, lambda: devices_summary(answers, gpu), lambda: devices_tables(answers, gpu))
        return
    show(
        judge.as_json,
        lambda: {**devices_summary(answers, gpu), "inference": inference_summary(served)},
        lambda: [*inference_tables(served), *devices_tables(answers, gpu)],
    )
