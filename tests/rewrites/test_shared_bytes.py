"""Which tensors share bytes, for the checker of reuse: as comparing each with each has it, only quicker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memplan_engine import Op
from memplan_engine.rewrites.reuse.breaches import Place, _meeting
from memplan_engine.rewrites.reuse.check_reuse import check_reuse
from tests.support.graphs import make_graph

PLACES = st.lists(
    st.builds(
        lambda memory, low, size: Place(memory, low, low + size),
        st.sampled_from("ab"), st.integers(0, 12), st.integers(0, 5),
    ),
    max_size=9,
)  # fmt: skip


@given(PLACES, PLACES)
def test_those_that_have_a_byte_in_common(ones: list[Place], others: list[Place]) -> None:
    assert _meeting(list(enumerate(ones)), list(enumerate(others))) == [
        (one, other) for one, a in enumerate(ones) for other, b in enumerate(others) if a.meets(b)
    ]


def test_an_op_of_20000_outputs_is_checked_in_no_time() -> None:
    names = [f"v{i}" for i in range(20_000)]
    op = Op("split", "k", ("x",), tuple(names))
    graph = make_graph([op], dict.fromkeys(("x", *names), 64), inputs=["x"], outputs=names)
    assert check_reuse(graph, graph) == ()
