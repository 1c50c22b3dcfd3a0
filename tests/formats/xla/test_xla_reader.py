"""Dumps of XLA as graphs, with its own plan: by hand, in every form that they are found in."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from memplan_engine import Graph, InputError, MemplanError, Plan, load, make_plan, validate_plan
from memplan_engine.files import recognise
from memplan_engine.formats.importer import ImportOptions
from memplan_engine.formats.xla_dump import assignment_text, hlo_proto, hlo_text
from memplan_engine.graph import Role, Source
from memplan_engine.planner import as_problem
from tests.support.xla_dumps import CHAIN, CHAIN_ASSIGNMENT, DUMPS, LOOP, TABLES, dump, proto

AS_PLAN = ImportOptions(offsets_as_plan=True)
WORD = "-buffer-assignment"


def written(folder: Path, name: str = "chain") -> Path:
    """The HLO of one of DUMPS, its assignment beside it."""
    hlo, assignment = DUMPS[name]
    (folder / "m.cpu_after_optimizations.txt").write_text(hlo)
    (folder / f"m.cpu_after_optimizations{WORD}.txt").write_text(assignment)
    return folder / "m.cpu_after_optimizations.txt"


def graph_of(path: Path) -> Graph:
    graph = load(path)
    assert isinstance(graph, Graph)
    return graph


def plan_of(path: Path) -> Plan:
    plan = load(path, AS_PLAN)
    assert isinstance(plan, Plan)
    assert validate_plan(plan).violations == ()
    return plan


def spans(plan: Plan) -> dict[str, tuple[int, int, int, int]]:
    """By name: begin, end, bytes and offset of each buffer."""
    problem = plan.problem
    columns = (problem.start, problem.end, problem.size, plan.offsets)
    return dict(zip(problem.names, zip(*(map(int, each) for each in columns), strict=True), strict=True))


def test_a_chain_with_a_write_in_place(tmp_path: Path) -> None:
    graph = graph_of(written(tmp_path))
    assert graph.name == "jit_f"
    assert [(each.name, each.kind, each.inputs, each.outputs, each.mutates) for each in graph.ops] == [
        ("wide", "concatenate", ("x.1",), ("wide",), ()),
        ("exp", "fusion", ("wide",), ("exp",), ("wide",)),
        ("other", "custom-call", ("exp",), ("other",), ()),
        ("sum", "custom-call", ("exp", "other"), ("sum",), ()),
    ]
    assert [(each.module, each.source) for each in graph.ops[:2]] == [
        ("mlp", Source("net.py", 7)),
        ("mlp", Source("net.py", 3)),
    ]
    assert {each.name: (each.nbytes, each.role, each.alignment) for each in graph.storages} == {
        "wide": (32, Role.ACTIVATION, 64),
        "other": (8, Role.ACTIVATION, 64),
        "x.1": (16, Role.INPUT, 64),
        "output allocation 1": (16, Role.INPUT, 64),
    }
    assert graph.inputs == ("output allocation 1", "x.1")
    assert graph.outputs == ("sum",)
    tensors = {each.name: (each.shape, each.dtype, each.storage) for each in graph.tensors}
    assert tensors["exp"] == ((8,), "float32", "wide")
    assert tensors["sum"] == ((4,), "float32", "output allocation 1")


def test_its_own_plan_of_a_chain(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path))
    assert (plan.arena_bytes, plan.strategy) == (72, "imported")
    assert spans(plan) == {"wide": (0, 4, 32, 0), "other": (2, 4, 8, 64)}
    assert make_plan(graph_of(written(tmp_path))).arena_bytes == 72


def test_a_loop_and_a_value_in_bytes_that_it_carries(tmp_path: Path) -> None:
    graph = graph_of(written(tmp_path, "loop"))
    assert [each.name for each in graph.ops] == [
        "init", "start", "c", "more", "b", "u", "v", "w", "n", "pair", "loop", "r",
    ]  # fmt: skip
    made = {each.name: each for each in graph.ops}
    assert made["u"].inputs == ("b{0}", "x.1")
    # The condition is read before the body begins; the loop reads what the body has left.
    assert made["b"].inputs == ("start", "init", "x.1", "more")
    assert made["loop"].inputs == ("pair", "n", "x.1")
    assert made["loop"].outputs == ("loop{0}", "loop")
    plan = plan_of(written(tmp_path, "loop"))
    assert plan.arena_bytes == 144
    assert spans(plan) == {
        "init": (0, 12, 64, 0),
        "start": (1, 11, 16, 128),
        "more": (3, 5, 1, 64),
        "u": (5, 7, 64, 64),
        "w": (7, 9, 64, 64),
    }
    homes = {each.name: each.storage for each in graph.tensors}
    assert {name for name, storage in homes.items() if storage == "init"} == {
        "init", "c{0}", "b{0}", "v", "n", "loop{0}",
    }  # fmt: skip


def test_branches_and_a_donated_argument(tmp_path: Path) -> None:
    graph = graph_of(written(tmp_path, "branches"))
    made = {each.name: each for each in graph.ops}
    assert list(made) == ["half", "y1", "y2", "z1", "either", "new", "both"]
    assert (made["new"].mutates, made["new"].inputs) == (("x.1",), ("x.1", "either"))
    assert made["either"].inputs == ("p.1", "half", "y2", "z1")
    assert set(graph.inputs) == {"x.1", "p.1", "output allocation 2", "output allocation 3"}
    assert graph.outputs == ("both", "new", "half")
    homes = {each.name: each.storage for each in graph.tensors}
    assert (homes["new"], homes["half"], homes["z1"]) == ("x.1", "output allocation 2", "y2")
    plan = plan_of(written(tmp_path, "branches"))
    assert spans(plan) == {"y1": (1, 3, 128, 64), "y2": (2, 6, 64, 0)}


@pytest.mark.parametrize("name", DUMPS)
def test_all_forms_say_the_same(tmp_path: Path, name: str) -> None:
    expected = graph_of(written(tmp_path, name))
    hlo, assignment = DUMPS[name]
    assert graph_of(tmp_path / f"m.cpu_after_optimizations{WORD}.txt") == expected
    (tmp_path / "both.txt").write_text(hlo + assignment)
    assert graph_of(tmp_path / "both.txt") == expected
    (tmp_path / "m.hlo.pb").write_bytes(proto(dump(name)))
    assert graph_of(tmp_path / "m.hlo.pb") == expected
    for path in tmp_path.iterdir():
        assert recognise(path).name == "hlo"


OLDER: dict[str, Callable[[str], str]] = {
    "without percent signs": lambda text: text.replace("%", ""),
    "operands with their shapes": lambda text: re.sub(r"\((%[^)]*)\)", _with_shapes, text),
    "lines at the instructions": lambda text: re.sub(
        r"stack_frame_id=(\d)",
        lambda found: f'source_file="net.py" source_line={ {"1": 3, "2": 7}[found[1]] }',
        text.replace(TABLES, ""),
    ),
}


def _with_shapes(found: re.Match[str]) -> str:
    return "(" + ", ".join(f"f32[8]{{0:T(8,128)S(1)}} {each}" for each in found[1].split(", ")) + ")"


@pytest.mark.parametrize("older", OLDER)
def test_other_versions_write_it_in_other_ways(tmp_path: Path, older: str) -> None:
    expected = graph_of(written(tmp_path))
    changed = OLDER[older](CHAIN)
    assert changed != CHAIN
    (tmp_path / "other.txt").write_text(changed + CHAIN_ASSIGNMENT)
    assert graph_of(tmp_path / "other.txt") == expected


def test_several_temporary_allocations_and_another_memory(tmp_path: Path) -> None:
    assignment = CHAIN_ASSIGNMENT.replace(
        " value: <4 other @0> (size=8,offset=64)",
        "allocation 7: size 8, preallocated-temp:\n value: <4 other @0> (size=8,offset=0)",
    ).replace("size 72", "size 40")
    (tmp_path / "two.txt").write_text(CHAIN + assignment)
    # Offsets of 0 alone say nothing of an alignment: 64.
    assert spans(plan_of(tmp_path / "two.txt")) == {"wide": (0, 4, 32, 0), "other": (2, 4, 8, 64)}
    (tmp_path / "host.txt").write_text(CHAIN + assignment.replace("size 8, pre", "size 8, color 5, pre"))
    assert spans(plan_of(tmp_path / "host.txt")) == {"wide": (0, 4, 32, 0)}
    assert "allocation 7" in graph_of(tmp_path / "host.txt").inputs


def test_alignment_is_what_all_offsets_have(tmp_path: Path) -> None:
    for offset, alignment in ((64, 64), (48, 16), (1024, 128)):
        text = CHAIN_ASSIGNMENT.replace("offset=64", f"offset={offset}").replace("size 72", "size 2000")
        (tmp_path / "m.txt").write_text(CHAIN + text)
        assert set(as_problem(graph_of(tmp_path / "m.txt")).alignment.tolist()) == {alignment}


def refusal(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (", is_scheduled=true", "", r"found a module without a schedule, expected is_scheduled=true"),
        ("ENTRY ", "", r"found no entry computation"),
        ("concatenate(%x.1, %x.1)", "concatenate(%x.1", r"instruction 'wide': found 'f32\[8\]"),
        ("<1 wide @0>", "<1 wider @0>", r"the instruction 'wider', expected an instruction of the HLO"),
        ("(size=8,offset=64)", "(size=9,offset=64)", r"found 9 bytes at 64, expected a place within its 72"),
        ("size 72, pre", "size -, pre", r"line 6 of the assignment: found 'allocation 2"),
        ("value: <2 exp", "value: exp", r"line 8 of the assignment: found ' value: exp"),
        ("<5 sum @0>", "<5 exp @0>", r"'exp': found the name twice"),
        ("<4 other @0>", "<4 e @0>", r"'other': found no place in the buffer assignment, and 'sum' reads it"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = CHAIN + CHAIN_ASSIGNMENT
    assert old in text
    assert re.search(told, refusal(tmp_path / "m.txt", text.replace(old, new)))


def test_a_loop_that_calls_itself(tmp_path: Path) -> None:
    text = LOOP.replace("condition=%condition", "condition=%body") + DUMPS["loop"][1]
    assert "computation 'body': found called twice" in refusal(tmp_path / "m.txt", text)


def test_one_file_without_the_other(tmp_path: Path) -> None:
    told = refusal(tmp_path / "m.txt", CHAIN)
    assert "found no buffer assignment, expected m-buffer-assignment.txt beside it" in told
    told = refusal(tmp_path / f"n{WORD}.txt", CHAIN_ASSIGNMENT)
    assert "found no HLO, expected n.txt beside it" in told
    # Renamed, it has nothing that tells the name of the other.
    assert "found no HLO" in refusal(tmp_path / "alone.txt", CHAIN_ASSIGNMENT)


def test_protocol_buffers_that_lack_something(tmp_path: Path) -> None:
    path = tmp_path / "m.pb"
    whole = proto(dump("chain"))
    path.write_bytes(whole[: whole.index(b"\x1a", len(whole) - 400)])
    with pytest.raises(InputError):
        load(path)
    path.write_bytes(b"\n\x07\n\x05jit_f")
    with pytest.raises(InputError, match="found no buffer assignment in it"):
        load(path)
    path.write_bytes(b"\n\x07\n\x05jit_f\x1a\x02\x1a\x00")
    with pytest.raises(InputError, match="found a module without a schedule"):
        load(path)


def test_damaged_dumps_are_read_or_refused(tmp_path: Path) -> None:
    random, path = Random(0), tmp_path / "m.pb"
    for name in DUMPS:
        texts = "".join(DUMPS[name]).encode()
        for suffix, whole in ((".pb", proto(dump(name))), (".txt", texts)):
            path = tmp_path / f"m{suffix}"
            for _ in range(150):
                data = bytearray(whole)
                at = random.randrange(20, len(data))
                data[at : at + random.randrange(4)] = random.randbytes(random.randrange(4))
                path.write_bytes(bytes(data))
                try:
                    load(path, AS_PLAN)
                except MemplanError:
                    continue


def test_the_most_of_a_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each limit at what the loop has: one less is refused."""
    texts, path = "".join(DUMPS["loop"]), tmp_path / "m.txt"
    # Instructions 8 + 3 + 6, values 16.
    limits = (
        (hlo_text, "MOST_INSTRUCTIONS", 17, "more than 16 instructions"),
        (assignment_text, "MOST_INSTRUCTIONS", 16, "line 20 of the assignment"),
        (hlo_text, "MOST_BYTES", len(DUMPS["loop"][0]) - 1, "characters of HLO"),
    )
    for module, name, most, told in limits:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, most)
            path.write_text(texts)
            load(path)
            patch.setattr(module, name, most - 1)
            assert told in refusal(path, texts)
    whole = proto(dump("chain"))
    (tmp_path / "m.pb").write_bytes(whole)
    monkeypatch.setattr(hlo_proto, "MOST_FIELDS", 50)
    with pytest.raises(InputError, match="more than 50 fields"):
        load(tmp_path / "m.pb")
    monkeypatch.setattr(hlo_text, "MOST_MARKS", {"(": 10})
    assert "times '(', expected at most 10" in refusal(path, texts)


def test_a_value_that_is_read_later_is_not_written_over(tmp_path: Path) -> None:
    """`other` reads `exp`, and so does `sum` behind it."""
    over = CHAIN_ASSIGNMENT.replace("(size=8,offset=64)", "(size=8,offset=24)")
    told = refusal(tmp_path / "m.txt", CHAIN + over)
    assert "value 'other': found it lies in bytes of 'exp', which an op reads later" in told
