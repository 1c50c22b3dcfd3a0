"""Which changes of the core and the checkers would no test notice? `make mutation` makes them, one by one.

    python -m tests.mutation [MODULE …] [--sample N] [--seed S] [--by-hand]

Not a tool off the shelf: mutmut leaves alone whatever has a decorator, and with it every kernel and property;
cosmic-ray starts a process for each mutant, which imports numba and torch anew. Here the tests of a module
are collected once. A mutant is a child of that process, in which the code of one function is another one; it
runs the tests that come through that function, the quickest first, up to the first that fails.

Survivors that nothing can tell from the original stand in `equivalent.md`, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import cProfile
import gc
import importlib.util
import io
import os
import pickle
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests import ROOT
from tests.mutation.modules import BY_HAND, TESTS
from tests.mutation.mutants import Mutant, by_hand, mutants

EQUIVALENT = Path(__file__).with_name("equivalent.md")
LONGEST_TEST, LONGEST_WAIT = 10, 1200
"""Seconds of CPU, above which a test is left out; seconds of all tests of a mutant together."""


class Judge:
    """A pytest plugin that runs the collected tests against each of `chosen`."""

    def __init__(self, module: str, chosen: Sequence[Mutant]) -> None:
        self.module, self.chosen = importlib.import_module(module), chosen
        self.functions: list[FunctionType] = []
        self.survivors: list[Mutant] = []
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        passing = in_child(lambda: self.measure(session.items))
        assert passing, f"no test of {self.module.__name__} passes"
        gc.unfreeze()
        self.functions = [
            each
            for each in gc.get_objects()
            if isinstance(each, FunctionType) and each.__code__.co_filename == self.module.__file__
        ]
        # What nobody writes to is shared with the children.
        gc.freeze()
        for mutant in self.chosen:
            calls = {at: seconds for at, (seconds, names) in passing.items() if mutant.function in names}
            # Nobody calls a constant: any test may depend on it.
            calls = calls or {at: seconds for at, (seconds, _) in passing.items()}
            through = sorted((seconds, at) for at, seconds in calls.items())
            items = [(seconds, session.items[at]) for seconds, at in through]
            if in_child(lambda: self.survives(mutant, items)):  # noqa: B023
                self.survivors.append(mutant)
        return True

    def measure(self, items: Sequence[pytest.Item]) -> dict[int, tuple[float, set[str]]]:
        """CPU seconds and the functions of the module that are called, of each test that passes."""
        file, passing = self.module.__file__, {}
        for at, item in enumerate(items):
            self.failed, began, calls = False, time.process_time(), cProfile.Profile(builtins=False)
            calls.enable()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            calls.disable()
            seconds = time.process_time() - began
            codes = [call.code for call in calls.getstats() if isinstance(call.code, CodeType)]
            names = {code.co_qualname for code in codes if code.co_filename == file}
            if not self.failed and seconds < LONGEST_TEST:
                passing[at] = seconds, {name.partition(".<locals>")[0] for name in names}
        return passing

    def survives(self, mutant: Mutant, items: Sequence[tuple[float, pytest.Item]]) -> bool:
        self.put_in(mutant)
        self.failed = False
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        for seconds, item in items:
            # A test that does not end is ended, and the process with it.
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + 5 + 5 * seconds), most))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if self.failed:
                return False
        return True

    def put_in(self, mutant: Mutant) -> None:
        """Give the function the mutant's code, whatever holds it, or the constant its value everywhere."""
        code = compile(mutant.tree, self.module.__file__ or "", "exec")
        for each in self.functions:
            if each.__code__.co_qualname == mutant.function:
                each.__code__ = code_of(code, mutant.function)
        for node in mutant.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == mutant.function:
                self.set_constant(mutant.function, eval(ast.unparse(node.value), dict(vars(self.module))))

    def set_constant(self, name: str, value: object) -> None:
        old = getattr(self.module, name)
        for other in list(sys.modules.values()):
            if name in getattr(other, "__dict__", {}):
                setattr(other, name, value)
        # Defaults of arguments were taken from it before.
        for each in self.functions:
            each.__defaults__ = tuple(value if d is old else d for d in each.__defaults__ or ()) or None
            keywords = each.__kwdefaults__ or {}
            each.__kwdefaults__ = {key: value if d is old else d for key, d in keywords.items()} or None


def code_of(module: CodeType, function: str) -> CodeType:
    """The code of `function`, which may be a method, in that of its module."""
    inner = [each for each in module.co_consts if isinstance(each, CodeType)]
    within = [each for one in inner for each in one.co_consts if isinstance(each, CodeType)]
    return next(each for each in (*inner, *within) if each.co_qualname == function)


def in_child(job: Callable[[], Any]) -> Any:
    """What `job` returns in a process of its own; None if it dies or takes more than LONGEST_WAIT."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with open(os.devnull, "w") as nothing, contextlib.suppress(BaseException):
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
            os.write(writing, pickle.dumps(job()))
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        if not select.select([pipe], [], [], LONGEST_WAIT)[0]:
            os.kill(child, signal.SIGKILL)
        said = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(said) if said else None


def judge_all(module: str, chosen: Sequence[Mutant]) -> tuple[int, list[Mutant]]:
    """How many of `chosen` are not equivalent, and which of these survive all tests."""
    known = [line for line in EQUIVALENT.read_text().splitlines() if line.startswith(f"- {module} ")]
    chosen = [mutant for mutant in chosen if not any(f" {mutant}" in line for line in known)]
    judge = Judge(module, chosen)
    options = ["-p", "no:cacheprovider", "-p", "no:faulthandler", "-m", "not slow and not browser"]
    # No limit by the clock: what else runs here would kill mutants.
    options += ["--hypothesis-seed=0", "--hypothesis-profile=mutation", "--timeout=0"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        ended = pytest.main([*options, *TESTS[module].split()], plugins=[judge])
    assert ended == pytest.ExitCode.OK, said.getvalue()
    return len(chosen), judge.survivors


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation tests of the core and the checkers.")
    parser.add_argument("modules", nargs="*", metavar="module", default=list(TESTS), help="of modules.TESTS")
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants of each, at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--by-hand", action="store_true", help="only the mutants of modules.BY_HAND")
    options = parser.parse_args()
    if len(options.modules) > 1:
        given = [word for word in sys.argv[1:] if word not in options.modules]
        return max([run_alone(module, given) for module in options.modules])
    (module,) = options.modules
    if ".kernels." in module:
        # Kernels are tested as plain Python, without numba's compiler, which is imported later.
        os.environ["NUMBA_DISABLE_JIT"] = "1"
    source = Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8")
    written = [by_hand(source, *each) for each in BY_HAND.get(module, ())]
    chosen = [] if options.by_hand else mutants(source)
    if options.sample and len(chosen) > options.sample:
        chosen = random.Random(options.seed).sample(chosen, options.sample)
    tried, survivors = judge_all(module, [*written, *chosen])
    print(f"{module}: {tried - len(survivors)} of {tried} killed", flush=True)
    for survivor in survivors:
        print(f"- {module} {survivor}", flush=True)
    return int(bool(survivors))


def run_alone(module: str, given: Sequence[str]) -> int:
    """A process for each module."""
    return subprocess.run([sys.executable, "-m", "tests.mutation", module, *given]).returncode


if __name__ == "__main__":
    os.chdir(ROOT)
    settings.register_profile(
        "mutation",
        max_examples=200,
        phases=[Phase.explicit, Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    sys.exit(main())
