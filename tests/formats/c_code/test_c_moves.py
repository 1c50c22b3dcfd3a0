"""The copies of a plan with moves in C: compiled with warnings as errors, and run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memplan_engine.formats.c_code.c_files import arenas_of_banks, copies_in_banks, write_c
from memplan_engine.formats.memplan_json.json_file import dumps
from tests.banks.test_moves import evicted, gpt
from tests.formats.c_code.test_c_header import compiled

MAIN = """
#define NET_DEFINE_ARENAS
#include "net.h"
int main(void) {
    NET_SRAM_AT(A)[3] = 7;
    net_do_copies(0, 3);
    if (NET_DRAM_AT(A_1)[3] != 0) return 1;
    net_do_copies(3, 4);
    return NET_DRAM_AT(A_1)[3] == 7 && NET_COPIES == 1 ? 0 : 2;
}
"""


@pytest.mark.parametrize("language", ["gcc", "g++"])
def test_copies_are_done_at_their_steps(language: str, tmp_path: Path) -> None:
    plan = evicted()
    write_c(arenas_of_banks(plan), tmp_path / "net.h", title="net", copies=copies_in_banks(plan))
    done = compiled(language, MAIN, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([str(tmp_path / language)], check=False).returncode == 0


def test_the_command_line_writes_the_table(memplan, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file, header = tmp_path / "moved.json", tmp_path / "net.h"
    file.write_bytes(dumps(gpt()))
    asked = ("plan", file, "--alignment", "1", "--moves", "--emit-c", header, "--bank", "sram=10", "--bank")
    code, _, err = memplan(*asked, "dram")
    assert (code, err) == (0, "")
    assert "    {3ul, 0, 1, " in header.read_text()
    code, _, err = memplan(
        "plan", file, "--bank", "sram=10", "--bank", "copies", "--moves", "--emit-c", header
    )
    assert (code, err) == (0, "")
    assert "net_copies_2" in header.read_text()
