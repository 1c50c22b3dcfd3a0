"""Programs of ExecuTorch, assembled by hand: which tensor is there at which instruction, and the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memplan_engine import ImportOptions, InputError, Plan, Problem, load
from memplan_engine.formats.executorch_program import pte_buffers, pte_tables
from memplan_engine.verify.validate import validate_plan
from tests.support.flat_builder import FlatTable
from tests.support.pte_programs import call, delegate, jump, method, move, number, program, tensor, tensors

AS_PLAN = ImportOptions(offsets_as_plan=True)


def planned(path: Path, data: bytes) -> Plan:
    path.write_bytes(data)
    plan = load(path, AS_PLAN)
    assert isinstance(plan, Plan)
    return plan


def lives(plan: Plan) -> dict[str, tuple[int, int, int, int]]:
    """First step, end, bytes and offset by name."""
    problem = plan.problem
    columns = (problem.start, problem.end, problem.size, plan.offsets)
    return dict(zip(problem.names, zip(*(each.tolist() for each in columns), strict=True), strict=True))


#   value            0   1   2      3
#   x (40 → 48 B)    input, read at step 0
#   h (100 → 112 B)  ├───┤       at byte 48, written at step 0
#   y (40 → 48 B)        ├──────  over x, the output
CHAIN = method(
    [tensor(10, 0), tensor(25, 48), tensor(10, 0), tensor(9, None), number()],
    [call(0, 0, 3, 1, 1), call(0, 1, 4, 2, 2)],
    [0],
    [2],
)


def test_lifetimes_are_those_of_the_instructions(tmp_path: Path) -> None:
    plan = planned(tmp_path / "net.pte", program(CHAIN))
    assert lives(plan) == {"input_0": (0, 1, 48, 0), "add_1": (0, 2, 112, 48), "add_2": (1, 3, 48, 0)}
    assert (plan.arena_bytes, plan.bound.nbytes, plan.strategy) == (160, 160, "imported")
    assert validate_plan(plan).valid
    problem = load(tmp_path / "net.pte")
    assert isinstance(problem, Problem)
    # To be planned anew: nothing is fixed.
    assert (problem.fixed == -1).all()
    assert problem.name == "net"


def test_forward_is_read_wherever_it_stands_else_the_first(tmp_path: Path) -> None:
    other = method([tensor(4, 0)], [call(0, 0, 0)], operators=["aten::mul"], name="other")
    assert "add_1" in lives(planned(tmp_path / "net.pte", program(other, CHAIN)))
    assert list(lives(planned(tmp_path / "net.pte", program(other)))) == ["mul_0"]


def test_a_view_is_its_base_and_what_is_written_over_its_last_reader_is_one_buffer(tmp_path: Path) -> None:
    values = [tensor(8, 0), tensor(8, 32), tensor(8, 32), tensor(8, 32), tensor(8, 64)]
    steps = [call(0, 0, 1, 1), call(0, 0, 4, 4), call(0, 2, 0, 3, 3)]
    plan = planned(tmp_path / "net.pte", program(method(values, steps, [0], [3])))
    # 1 is written at 0; 2, never written, is read at 2, where 3 is written in the same bytes.
    assert lives(plan) == {"input_0": (0, 3, 32, 0), "add_1": (0, 4, 32, 32), "add_4": (1, 2, 32, 64)}


def test_what_is_written_over_and_read_later_is_a_collision(tmp_path: Path) -> None:
    """2 is written over 1 by an op that reads 1, as in place; but 1 is read once more."""
    values = [tensor(8, 0), tensor(8, 32), tensor(8, 32), tensor(8, 64)]
    steps = [call(0, 0, 1, 1), call(0, 1, 2, 2), call(0, 1, 2, 3, 3)]
    plan = planned(tmp_path / "net.pte", program(method(values, steps, [0], [3])))
    assert lives(plan)["add_1"] == (0, 3, 32, 32)
    assert lives(plan)["add_2"] == (1, 3, 32, 32)
    assert not validate_plan(plan).valid


def test_what_nobody_wrote_and_what_comes_with_content_is_kept_all_along(tmp_path: Path) -> None:
    values = [tensor(4, 0), tensor(4, 16, data=3), tensor(4, 32)]
    steps = [call(0, 2, 2), call(0, 0, 2, 2), call(0, 2, 1, 1)]
    plan = planned(tmp_path / "net.pte", program(method(values, steps)))
    assert lives(plan) == {"add_0": (0, 4, 16, 0), "add_1": (0, 4, 16, 16), "add_2": (0, 3, 16, 32)}


def test_lists_and_delegates_name_their_tensors(tmp_path: Path) -> None:
    values = [tensor(4, 0), tensor(4, 16), tensor(4, 32), tensors([1, 2]), tensors([0, -1])]
    plan = planned(
        tmp_path / "net.pte", program(method(values, [call(0, 0, 3), call(0, 4, 2), delegate(0, 1)]))
    )
    assert [(each[0], each[1]) for each in lives(plan).values()] == [(0, 4), (0, 3), (0, 2)]


def conditions(second: int) -> bytes:
    """Two branches that make values 1 and 2, moved to 3; then, at step 6, 4 in the bytes at `second`, and 5
    from what the condition gave."""
    values = [
        tensor(4, 0),
        tensor(4, 64),
        tensor(4, 80),
        tensor(4, 16),
        tensor(4, second),
        tensor(4, 48),
        number(),
    ]
    steps = [
        jump(6, 4), call(0, 0, 1, 1), move(1, 3), jump(6, 6), call(0, 0, 2, 2), move(2, 3),
        call(0, 0, 4, 4), call(0, 3, 4, 5, 5),
    ]  # fmt: skip
    return program(method(values, steps, [0], [5]))


def test_what_a_branch_gave_is_there_until_it_is_read_but_for_the_other_branch(tmp_path: Path) -> None:
    plan = planned(tmp_path / "net.pte", conditions(32))
    # 1 and 2 never are there together; both outlive the moves.
    found = lives(plan)
    assert (found["add_1"][:2], found["add_2"][:2]) == ((1, 8), (4, 8))
    assert [(gap.start, gap.end) for gap in plan.problem.gaps[plan.problem.names.index("add_1")]] == [(3, 6)]
    assert validate_plan(plan).valid


@pytest.mark.parametrize("second", [64, 80])
def test_what_overwrites_the_result_of_a_condition_is_found(tmp_path: Path, memplan, second: int) -> None:
    plan = planned(tmp_path / "net.pte", conditions(second))
    assert not validate_plan(plan).valid
    code, _, err = memplan("plan", tmp_path / "net.pte", "--strategy", "imported")
    assert (code, "overlap at steps 6" in err) == (2, True)


def test_branches_that_give_their_result_where_it_is_read_share_one_buffer(tmp_path: Path) -> None:
    values = [tensor(4, 0), tensor(4, 16), tensor(4, 16), tensor(4, 16), tensor(4, 32), number()]
    steps = [
        jump(5, 4), call(0, 0, 1, 1), move(1, 3), jump(5, 6), call(0, 0, 2, 2), move(2, 3), call(0, 3, 4, 4),
    ]  # fmt: skip
    plan = planned(tmp_path / "net.pte", program(method(values, steps, [0], [4])))
    assert lives(plan)["add_1"] == (1, 7, 16, 16)
    assert len(plan.problem) == 3
    assert validate_plan(plan).valid


def test_a_loop_keeps_what_it_reads_again_and_what_it_fills(tmp_path: Path) -> None:
    values = [tensor(4, 0), tensor(4, 16), tensor(4, 32), tensor(4, 48), number()]
    # Steps 1 to 4 run again and again: 1 is made from 0, 2 filled by rows from 1.
    steps = [
        call(0, 0, 3, 3),
        call(0, 0, 1, 1),
        call(0, 3, 1, 1),
        call(1, 2, 1, 4),
        jump(4, 1),
        call(0, 2, 3, 3),
    ]
    found = lives(planned(tmp_path / "net.pte", program(method(values, steps, [0], [3]))))
    assert found["input_0"][:2] == (0, 5)
    assert found["add_1"][:2] == (1, 4)
    assert found["et_copy_index_2"][:2] == (1, 6)


def test_beside_ours_on_the_command_line(tmp_path: Path, memplan) -> None:
    values = [tensor(4, 0), tensor(4, 64), tensor(4, 16)]
    steps = [call(0, 0, 1, 1), call(0, 1, 2, 2)]
    (tmp_path / "net.pte").write_bytes(program(method(values, steps, [0], [2])))
    code, out, _ = memplan("compare", tmp_path / "net.pte", "--strategies", "imported,auto", "--json")
    assert code == 0
    assert [(row["strategy"], row["arena_bytes"]) for row in json.loads(out)] == [
        ("imported", 80),
        ("auto", 32),
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (program(), "execution plans: found none"),
        (program(method([], [])), "method 'forward': found no planned tensors"),
        (program(method([tensor(4, 0), tensor(4, 0, 2)], [])), "found tensors in the memories 1, 2"),
        (program(method([tensor(4, 0, kind=99)], [])), "value 0: found the type 99"),
        (program(method([tensor(-4, 0)], [])), "value 0: found sizes .-4. at byte 0"),
        (program(method([tensor(4, 0, high=2**31)], [])), "all below 2.63 bytes"),
        (program(method([tensor(4, 0)], [call(0, 3)])), "values: found the number 3, expected one of 1"),
        (program(method([tensor(4, 0)], [call(7, 0)])), "operators: found the number 7, expected one of 2"),
        (program(method([tensor(4, 0)], [move(0, 5)])), "values: found the number 5"),
        (program(method([tensor(4, 0)], [jump(0, 5)])), "step 0: found a jump to 5, expected 0 to 1"),
        (program(method([tensor(4, 0)], [FlatTable({0: ("B", 9), 1: FlatTable()})])), "found the kind 9"),
        (program(method([tensor(4, 0)], [], name="n" * 2000)), "a name of 2,000 bytes"),
        (program(CHAIN)[:90], "a place at byte|a list of"),
    ],
)
def test_what_is_damaged_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "net.pte").write_bytes(data)
    with pytest.raises(InputError, match=message):
        load(tmp_path / "net.pte", AS_PLAN)


def test_vectors_that_stand_for_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pte_tables, "MOST_USES", 40)
    many = method([tensor(4, 0), tensors([0] * 10)], [call(0, 1) for _ in range(4)])
    (tmp_path / "net.pte").write_bytes(program(many))
    with pytest.raises(InputError, match="more than 40 uses of values"):
        load(tmp_path / "net.pte")
    monkeypatch.setattr(pte_buffers, "MOST_USES", 1)
    loop = method([tensor(4, 0), tensor(4, 16)], [call(0, 0, 1, 1), jump(0, 0)])
    (tmp_path / "loop.pte").write_bytes(program(loop))
    with pytest.raises(InputError, match=r"loop\.pte: instructions: found 1 loops around 2 tensors"):
        load(tmp_path / "loop.pte")
    monkeypatch.setattr(pte_tables, "MOST_TABLES", 3)
    with pytest.raises(InputError, match="a list of 4 tables, expected at most 3"):
        load(tmp_path / "net.pte")


def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    data = program(CHAIN)
    for at in range(8, len(data)):
        for wrong in (0xFF, data[at] ^ 1):
            (tmp_path / "net.pte").write_bytes(data[:at] + bytes([wrong]) + data[at + 1 :])
            try:
                load(tmp_path / "net.pte", AS_PLAN)
            except InputError:
                continue


def test_results_of_branches_in_the_same_bytes_are_one_buffer_that_the_other_branch_may_use(
    tmp_path: Path,
) -> None:
    # As ExecuTorch's greedy places one condition: 1 and 2 at byte 64, a temporary of the second branch, too.
    values = [
        tensor(4, 0),
        tensor(4, 64),
        tensor(4, 64),
        tensor(4, 16),
        tensor(4, 32),
        tensor(8, 64),
        tensor(4, 48),
    ]
    steps = [
        jump(0, 4), call(0, 0, 1, 1), move(1, 3), jump(0, 8), call(0, 0, 5, 5), call(0, 5, 6, 6),
        call(0, 6, 2, 2), move(2, 3), call(0, 3, 4, 4),
    ]  # fmt: skip
    plan = planned(tmp_path / "net.pte", program(method(values, steps, [0], [4])))
    assert lives(plan)["add_1"][:2] == (1, 9)
    row = plan.problem.names.index("add_1")
    assert [(gap.start, gap.end) for gap in plan.problem.gaps[row]] == [(3, 6)]
    assert validate_plan(plan).valid
