"""Problems and plans with banks as JSON and CSV, and the verbs that read and write them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from memplan_engine.banked.banked_plan import BankedPlan, rebank, with_banks
from memplan_engine.banks.bank_values import Bank
from memplan_engine.cli.app import run
from memplan_engine.errors import InputError
from memplan_engine.files import ImportOptions, load, write
from memplan_engine.formats.csv_tables.csv_writer import to_csv
from memplan_engine.formats.memplan_json.json_file import dumps, load_banked, loads, read_banked
from memplan_engine.formats.memplan_json.schema import schemas
from memplan_engine.plan import Plan
from memplan_engine.problem import Problem, make_problem
from memplan_engine.spilling.bank_planner import plan_banks
from memplan_engine.strategies.base import SolveLimits
from tests.support.banked import drawn_problem


def listed(**more: Any) -> Problem:
    """Two bytes of SRAM and what else there is: `a` where it likes, `b` in SRAM, `c` rather in DRAM."""
    problem = make_problem([0, 0, 1], [2, 2, 3], [2, 1, 3], names=["a", "b", "c"], name="listed")
    banks = [Bank("sram", 2, 1, 4), Bank("dram", None, 2, 1)]
    allowed = np.array([[True, True], [True, False], [True, True]])
    return with_banks(problem, banks, allowed=allowed, preferred=np.array([-1, -1, 1]), **more)


def test_a_problem_with_banks_is_read_back_as_it_was() -> None:
    problem = listed()
    file = json.loads(dumps(problem))
    assert file["banks"] == {
        "banks": [
            {"name": "sram", "capacity": 2, "bandwidth": 4},
            {"name": "dram", "alignment": 2, "bandwidth": 1},
        ],
        "choices": ["", "sram", "dram?"],
    }
    back = loads(dumps(problem).decode(), "listed.json")
    assert back == problem
    counted = listed(accessed=np.array([5, 6, 7]))
    assert json.loads(dumps(counted))["banks"]["accessed"] == [5, 6, 7]
    assert loads(dumps(counted).decode(), "listed.json") == counted
    jsonschema.validate(file, json.loads(schemas()["problem.v1.json"]))


@pytest.mark.parametrize("seed", range(12))
def test_drawn_plans_are_read_back_byte_equal(seed: int) -> None:
    problem = drawn_problem(seed, most=5)
    own = problem.banks
    assert own is not None
    roomy = rebank(
        problem, [replace(bank, capacity=None if bank.name == "last" else 40) for bank in own.banks]
    )
    plan = plan_banks(roomy, limits=SolveLimits(60.0))
    text = dumps(plan)
    assert dumps(read_banked(text.decode(), "plan.json")) == text
    jsonschema.validate(json.loads(text), json.loads(schemas()["plan.v2.json"]))


@pytest.fixture
def plan() -> BankedPlan:
    return plan_banks(listed(), limits=SolveLimits(60.0))


def test_a_bank_of_a_plan_is_a_plan_like_any_other(tmp_path: Path, plan: BankedPlan) -> None:
    path = tmp_path / "plan.json"
    write(plan, path)
    back = load_banked(path)
    assert back is not None
    assert (back.bank_of.tolist(), back.traffic) == (plan.bank_of.tolist(), plan.traffic)
    sram = load(path, ImportOptions(bank="sram"))
    assert isinstance(sram, Plan)
    assert sram.problem.names == ("b",)
    with pytest.raises(InputError, match="--in-bank sram or dram"):
        load(path)
    with pytest.raises(InputError, match="the bank 'psram'"):
        load(path, ImportOptions(bank="psram"))
    write(sram, tmp_path / "sram.json")
    assert load_banked(tmp_path / "sram.json") is None


BROKEN = [
    ({"bank_of": [0, 0]}, r"bank_of: found 2 banks"),
    ({"bank_of": [0, 0, 2]}, r"bank_of\[2\]: found 2"),
    ({"offsets": [0]}, r"offsets: found 1 offsets"),
    ({"plans": []}, r"plans: found 0 plans"),
    ({"version": 3}, r"version: found 3"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_parts_that_do_not_fit_together_are_refused(
    plan: BankedPlan, change: dict[str, Any], message: str
) -> None:
    text = json.dumps(json.loads(dumps(plan)) | change)
    with pytest.raises(InputError, match=message):
        loads(text, "plan.json", "sram")


def test_other_things_in_the_file_are_refused(plan: BankedPlan) -> None:
    file = json.loads(dumps(plan))
    file["plans"][1]["arena_bytes"] += 1
    with pytest.raises(InputError, match=r"plans\[1\].arena_bytes"):
        read_banked(json.dumps(file), "plan.json")
    file = json.loads(dumps(plan))
    file["bound"]["prices"] = [{"bank": 2, "step": 0, "price": 1}]
    with pytest.raises(InputError, match=r"bound.prices\[0\].bank"):
        read_banked(json.dumps(file), "plan.json")
    file = json.loads(dumps(plan))
    del file["problem"]["banks"]
    with pytest.raises(InputError, match=r"problem.banks"):
        read_banked(json.dumps(file), "plan.json")
    problem = json.loads(dumps(listed()))
    problem["banks"]["choices"] = ["", "sram", "flash"]
    with pytest.raises(InputError, match=r"banks.choices\[2\]: found the bank 'flash'"):
        loads(json.dumps(problem), "listed.json")


def test_csv_says_where_a_buffer_may_live_and_where_it_does(tmp_path: Path, plan: BankedPlan) -> None:
    assert to_csv(plan).decode() == (
        "id,lower,upper,size,offset,banks,accessed,bank\n"
        "a,0,2,2,0,,4,dram\n"
        "b,0,2,1,0,sram,2,sram\n"
        "c,1,3,3,2,dram?,6,dram\n"
    )
    path = tmp_path / "plan.csv"
    write(plan, path)
    back = load(path)
    assert isinstance(back, Problem)
    assert back.banks is not None
    assert back.banks.names == ("sram", "dram")
    assert back.banks.allowed.tolist() == [[False, True], [True, False], [False, True]]
    assert back.fixed.tolist() == [0, 0, 2]
    path.write_text("id,lower,upper,size,banks\na,0,1,4,sram?|dram?\n")
    with pytest.raises(InputError, match="line 2, field banks"):
        load(path)


def test_banks_of_the_same_names_take_the_place_of_a_files() -> None:
    problem = listed()
    other = rebank(problem, [Bank("dram", 9, 1, 2), Bank("psram", 8, 1, 3)])
    assert other.banks is not None
    assert other.banks.names == ("dram", "psram", "sram")
    assert other.banks.allowed.tolist() == [[True, True, True], [False, False, True], [True, True, True]]
    assert other.banks.preferred.tolist() == [-1, -1, 0]
    assert other.banks.banks[2] == Bank("sram", 2, 1, 4)


LIST = "id,lower,upper,size\na,0,2,4\nb,0,2,4\nc,0,2,2\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "list.csv"
    path.write_text(LIST)
    return path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = run([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_plan_validate_and_the_verbs_of_one_bank(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "plan.json"
    banks = ["--bank", "sram=6", "--bank", "dram"]
    code, out, _ = answer(capsys, "plan", file, *banks, "-o", written)
    assert code == 0
    assert "optimal: no assignment to these banks has less traffic than 8 B" in out
    code, out, _ = answer(capsys, "plan", file, *banks, "--json")
    summary = json.loads(out)
    assert (summary["verdict"], summary["core"]) == ("fits", None)
    assert [bank["arena_bytes"] for bank in summary["plan"]["banks"]] == [6, 4]
    assert summary["plan"]["traffic"] == 8
    assert answer(capsys, "validate", written)[:2] == (0, "valid: 3 buffers in sram, dram\n")
    code, out, _ = answer(capsys, "peak", written, "--in-bank", "sram")
    assert (code, "6 B" in out) == (0, True)
    code, out, _ = answer(capsys, "replay", written, "--in-bank", "dram", "--json")
    assert (code, "b" in out or "a" in out) == (0, True)
    code, _, err = answer(capsys, "peak", written)
    assert (code, "--in-bank sram or dram" in err) == (2, True)
    code, _, err = answer(capsys, "peak", file, "--in-bank", "sram")
    assert (code, "a plan over several banks" in err) == (2, True)


def test_a_plan_that_was_changed_by_hand_is_not_valid(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "plan.json"
    answer(capsys, "plan", file, "--bank", "sram=6", "--bank", "dram", "-o", written)
    changed = json.loads(written.read_text())
    changed["problem"]["banks"]["banks"][0]["capacity"] = 5
    written.write_text(json.dumps(changed))
    code, out, _ = answer(capsys, "validate", written, "--json")
    assert code == 1
    assert json.loads(out)["counts"] == {"capacity": 1}


def test_no_room_has_an_exit_code_and_a_core(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "plan", file, "--bank", "sram=5", "--bank", "dram=4")
    assert code == 1
    assert out.startswith("does not fit: a, b, c hold 10 bytes at step 0, and sram and dram have 9")
    code, out, _ = answer(capsys, "plan", file, "--bank", "sram=5", "--bank", "dram=5", "--json")
    assert (code, json.loads(out)["core"]["kind"]) == (1, "search")


def test_what_if_changes_the_capacity_of_a_bank(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "plan.json"
    answer(capsys, "plan", file, "--bank", "sram=6", "--bank", "dram", "-o", written)
    code, out, _ = answer(capsys, "what-if", written, "--bank", "sram=10", "--drop", "c", "--json")
    compared = json.loads(out)
    assert code == 0
    assert (compared["before"]["traffic"], compared["after"]["traffic"]) == (8, 0)
    assert len(compared["moved"]) == 1
    assert compared["edits"] == [{"kind": "drop", "buffer": "c"}]
    code, out, _ = answer(capsys, "what-if", written, "--bank", "sram=10")
    assert (code, "sram, capacity" in out) == (0, True)
    assert answer(capsys, "what-if", written, "--bank", "dram=2")[0] == 1
    for arguments in (["--bank", "psram=4"], ["--capacity", "4"]):
        code, _, err = answer(capsys, "what-if", written, *arguments)
        assert (code, err.count("\n")) == (2, 1)
    code, _, err = answer(capsys, "what-if", file, "--bank", "sram=4")
    assert (code, "no banks" in err) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bank", "sram="],
        ["--bank", "sram=4", "--bank", "sram=5"],
        ["--bank", "sram=4", "--capacity", "9"],
        ["--bank", "sram=4,bandwidth=1", "--bank", "dram"],
        ["--objective", "peak"],
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(
    arguments: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = answer(capsys, "plan", file, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
