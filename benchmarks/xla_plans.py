"""XLA's plans of JAX functions for the CPU, ours and the proved bound: `python -m benchmarks xla_plans`.

Needs jax (`pip install 'memplan[jax]'`), which may stand in an interpreter of its own.
"""

from __future__ import annotations

import sys

from memplan_engine import make_plan, validate_plan
from tests.support.jax_kinds import NAMES


def main() -> None:
    """Print a row a function."""
    try:
        import jax

        from tests.support import jax_models
    except ImportError:
        sys.exit("xla_plans needs jax: pip install 'memplan[jax]'")
    from memplan_engine.jax_capture.jax_compile import captured

    print(f"jax {jax.__version__}; bytes of temporaries")
    print("| function | ops | buffers | memory_analysis | XLA's arena | ours | bound | valid |")
    print("|-|-|-|-|-|-|-|-|")
    for name in NAMES:
        function, args = getattr(jax_models, name)()
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        found = captured(jitted.lower(*args).compile(), name)
        ours = make_plan(found.graph)
        valid = not validate_plan(found.plan).violations and not validate_plan(ours).violations
        figures = (found.analysis.temporaries, found.plan.arena_bytes, ours.arena_bytes, ours.bound.nbytes)
        told = " | ".join(f"{figure:,}" for figure in figures)
        print(f"| {name} | {len(found.graph.ops)} | {len(found.plan.problem)} | {told} | {valid} |")


if __name__ == "__main__":
    main()
