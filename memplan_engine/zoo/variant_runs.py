"""A task → its answer, in a process of its own that may die without harm to who asks; on a cluster it is a
worker that asks. Known without torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from memplan_engine.errors import MemplanError
from memplan_engine.system import ended_words
from memplan_engine.torch_capture.torch_fake import look_for_torch
from memplan_engine.zoo.carried import ANSWER, TASK
from memplan_engine.zoo.planning import failed, graph_of, planned
from memplan_engine.zoo.variant_keys import forget_sources, sources_digest, versions_here
from memplan_engine.zoo.zoo_values import ZooAnswer, ZooGraph, ZooTask

PROCESS = "memplan_engine.zoo.variant_process"
ASKED, ANSWERED, SAID = "asked.json", "answered.json", "said.txt"
LOOK_SECONDS = 0.1
"""Between two looks whether somebody wants it to stop."""


class NoLongerWantedError(Exception):
    """Nobody waits for the answer any more."""


def run_task(task: ZooTask, stop: Callable[[], bool] | None = None, checked: bool = False) -> ZooAnswer:
    """The answer to `task`; `stop` is asked all along. Unless it is `checked` already, the files and the
    packages here have to be those that it was asked with: an answer is kept for all who have the same.

    Raises
    ------
    NoLongerWantedError: by `stop`.
    """
    wrong = "" if checked else _another_place(task)
    if wrong:
        return failed(wrong)
    stop = stop or (lambda: False)
    try:
        if task.variant.origin.script and not task.graphs:
            return planned(task, _ranks(task, stop))
        return _in_process(task, stop)
    except MemplanError as error:
        return failed(str(error))


def _another_place(task: ZooTask) -> str:
    """What is not here as it is where the task was asked, "" for nothing."""
    import socket

    host = socket.gethostname()
    if not Path(task.folder).is_dir():
        return f"worker on {host}: no such folder {task.folder}, expected one that all machines share"
    here = dict(versions_here())
    for package, number in task.versions:
        if here.get(package) != number:
            found, expected = here.get(package) or "is missing", number or "none"
            return f"worker on {host}: {package} {found}, expected {expected}"
    forget_sources()
    if sources_digest(task.variant.origin, Path(task.folder)) != task.sources:
        return (
            f"worker on {host}: {task.variant.origin.name} is made from other files there, expected the same"
        )
    return ""


def _in_process(task: ZooTask, stop: Callable[[], bool]) -> ZooAnswer:
    # Here, not above: where all is known nothing is run.
    from memplan_engine.runtime.scratch import scratch_folder
    from memplan_engine.runtime.scripts.host import start_run

    look_for_torch("capturing a model")
    with scratch_folder() as folder:
        (folder / ASKED).write_bytes(TASK.written(task))
        run = start_run(PROCESS, folder, folder / SAID, task.variant.label)
        begun = time.monotonic()
        try:
            while (code := run.wait(LOOK_SECONDS)) is None:
                if stop():
                    raise NoLongerWantedError
                if time.monotonic() - begun > task.seconds:
                    return failed(
                        f"not through after {task.seconds:g} s: more time (--seconds), or a smaller one"
                    )
        finally:
            run.end()
        place = folder / ANSWERED
        answer = ANSWER.read(place.read_bytes()) if place.exists() else None
        if answer is not None:
            return answer
        said = folder / SAID
        words = ended_words(code, said.read_text(errors="replace") if said.exists() else "")
        return ZooAnswer(died=words)


def _ranks(task: ZooTask, stop: Callable[[], bool]) -> list[ZooGraph]:
    """The graphs of the ranks of a script that differ, each with what it takes of its device."""
    from memplan_engine.accelerators.presets import accelerator, operators_of
    from memplan_engine.devices.rank_answers import device_answers
    from memplan_engine.recordings.observation import observed_peak
    from memplan_engine.recordings.observed_graph import observation_graph
    from memplan_engine.runtime.ranks.rank_runs import StoppedError, observe_ranks

    origin, gpu = task.variant.origin, accelerator(task.variant.device)
    try:
        runs = observe_ranks(
            Path(task.folder) / origin.script,
            origin.arguments,
            world_size=origin.world,
            device="cuda",
            arch=operators_of(gpu),
            seconds=task.seconds,
            stop=stop,
        )
    except StoppedError:
        raise NoLongerWantedError from None
    graphs = []
    for each in device_answers(runs, gpu).ranks:
        seen = each.run.observation
        graph = observation_graph(seen, None)
        graphs.append(graph_of(graph, str(each.run.rank), observed_peak(seen)[0], each.reserved_bytes))
    return graphs
