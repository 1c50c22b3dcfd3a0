"""JAX functions by way of XLA: with a compiler written by hand, and with jax itself, in an interpreter of its
own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memplan_engine import InputError, MissingDependencyError, load, validate_plan
from memplan_engine.jax_capture.jax_compile import MemoryAnalysis, capture_jax, captured
from tests import ROOT
from tests.support.jax_kinds import NAMES
from tests.support.xla_dumps import dump, protos

JAX_PYTHON = os.environ.get("MEMPLAN_JAX_PYTHON")
"""An interpreter that has jax and what memplan depends on."""
FACTORY = """
def build(batch=2):
    return (lambda x: x), (batch,)

def named(batch=2):
    return (lambda x: x), {"x": batch}

def wrong():
    return 3
"""


class Compiled:
    """What jax gives for the loop of `xla_dumps`."""

    def __init__(self) -> None:
        self._module, self._assignment = protos(dump("loop"))

    def memory_analysis(self) -> SimpleNamespace:
        return SimpleNamespace(
            temp_size_in_bytes=144,
            argument_size_in_bytes=64,
            output_size_in_bytes=64,
            alias_size_in_bytes=0,
            serialized_buffer_assignment_proto=self._assignment,
        )

    def runtime_executable(self) -> SimpleNamespace:
        module = SimpleNamespace(as_serialized_hlo_module_proto=lambda: self._module)
        return SimpleNamespace(hlo_modules=lambda: [module])


def stub_jax(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have `import jax` give a compiler that knows one function; what it was asked to compile."""
    asked: list[Any] = []

    def lower(*args: Any, **kwargs: Any) -> SimpleNamespace:
        asked.append((args, kwargs))
        return SimpleNamespace(compile=Compiled)

    jax = SimpleNamespace(jit=lambda function: SimpleNamespace(lower=lower))
    monkeypatch.setitem(sys.modules, "jax", jax)  # type: ignore[arg-type]
    return asked


def test_what_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fns.py").write_text(FACTORY)
    asked = stub_jax(monkeypatch)
    found = capture_jax(f"{tmp_path}/fns.py:build(batch=7)")
    capture_jax(f"{tmp_path}/fns.py:named")
    assert asked == [((7,), {}), ((), {"x": 2})]
    assert found.analysis == MemoryAnalysis(144, 64, 64, 0)
    assert found.plan.arena_bytes == 144
    assert validate_plan(found.plan).violations == ()
    assert [op.name for op in found.graph.ops][:3] == ["init", "start", "c"]
    with pytest.raises(InputError, match=r"return value: found \(int\), expected \(function, args\)"):
        capture_jax(f"{tmp_path}/fns.py:wrong")


def test_a_compiler_that_says_nothing() -> None:
    compiled = Compiled()
    compiled.memory_analysis = lambda: None  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(InputError, match="step: found no buffer assignment"):
        captured(compiled, "step")


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)  # type: ignore[arg-type]
    with pytest.raises(MissingDependencyError, match=r"needs jax: pip install 'memplan\[jax\]'"):
        capture_jax("nowhere:build")


def test_the_verb(memplan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fns.py").write_text(FACTORY)
    stub_jax(monkeypatch)
    target = tmp_path / "loop.json"
    spec = f"{tmp_path}/fns.py:build"
    code, _, err = memplan("capture", "--jax", spec, "-o", str(target))
    assert code == 0
    told = "memory_analysis: temporaries 144 B, arguments 64 B, results 64 B, aliased 0 B; XLA's own plan "
    assert f"{target}: {told}takes 144 B" in err
    about = {"temporaries": 144, "arguments": 64, "results": 64, "aliased": 0}
    assert json.loads(target.read_text())["about"] == {"xla": about}
    assert load(target) == captured(Compiled(), "loop").graph
    code, _, err = memplan("capture", "--jax", spec, "--training", "step", "-o", str(target))
    assert (code, "--training: found --jax, expected a PyTorch model" in err) == (2, True)


ALL = """
import json, sys
import jax
from memplan_engine import make_plan, validate_plan
from memplan_engine.jax_capture.jax_compile import captured
from tests.support import jax_models
for name in sys.argv[1:]:
    function, args = getattr(jax_models, name)()
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    found = captured(jitted.lower(*args).compile(), name)
    ours = make_plan(found.graph)
    lines = {str(op.source) for op in found.graph.ops if op.source}
    told = [found.plan.arena_bytes, found.analysis.temporaries, len(validate_plan(found.plan).violations)]
    told += [ours.arena_bytes, len(validate_plan(ours).violations), any("jax_models.py" in x for x in lines)]
    print(json.dumps([name, *told]))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(JAX_PYTHON is None, reason="MEMPLAN_JAX_PYTHON names no interpreter with jax")
def test_every_kind_of_function_by_jax_itself() -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [str(JAX_PYTHON), "-c", ALL, *NAMES],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == list(NAMES)
    for name, arena, temporaries, violations, ours, of_ours, has_lines in rows:
        # JAX's own figure is what is independent of the reader.
        assert (arena, violations, of_ours, has_lines) == (temporaries, 0, 0, True), name
        assert ours <= arena, name
