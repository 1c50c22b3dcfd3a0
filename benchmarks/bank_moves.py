"""Plans in which buffers move between banks, against those in which they stay, and against both bounds."""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.table import Table

from benchmarks.banks import cases, ratio
from memplan_engine import validate_banked
from memplan_engine.banked.bank_moves import copies_of
from memplan_engine.spilling.moves.move_planner import decide_moves
from memplan_engine.strategies.base import SolveLimits
from memplan_engine.verify.move_checks import check_moves

GRAPHS = (
    "mobilenet_v2.json", "resnet50.json", "vit_b16.json", "gpt2.json", "gpt2_all_logits.json",
    "bert_base.json", "whisper_tiny.json", "llama_7b.json", "bert_training_default.json",
    "bert_training_min_cut.json", "gpt2_training_step.json",
)  # fmt: skip


def main() -> None:
    """Print a table: traffic with moves over its bound, and over the traffic without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="limit of each plan")
    parser.add_argument("--graphs", nargs="*", default=GRAPHS)
    arguments = parser.parse_args()
    table = Table("graph", "SRAM", "bound", "moves", "copies", "of without", "proved", "seconds", "of it")
    for name, share, banked in cases(arguments.graphs):
        if banked.origin is None:
            continue
        begun = time.perf_counter()
        decision = decide_moves(banked, limits=SolveLimits(arguments.seconds))
        seconds, plan, still = time.perf_counter() - begun, decision.plan, decision.still.plan
        assert plan is not None
        assert still is not None
        assert validate_banked(plan, replay=False).valid
        assert not check_moves(banked, plan)
        bound = plan.bound.value
        table.add_row(
            name,
            f"{share:.0%}",
            f"{bound:,}",
            ratio(plan.traffic, bound),
            f"{len(copies_of(plan.problem)):,}",
            ratio(plan.traffic, still.traffic),
            "yes" if plan.optimal else "",
            f"{seconds:.1f}",
            f"{still.seconds:.1f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
