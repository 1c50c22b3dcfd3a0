"""Plans as C: compiled by gcc and clang with warnings as errors, checked by both, linked into memories."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan_engine import InputError, Plan, load, make_plan, make_problem
from memplan_engine.formats.c_code.c_header import CArena, c_header, neighbours
from memplan_engine.formats.c_code.c_names import c_names
from memplan_engine.formats.c_code.linker_script import linker_script
from memplan_engine.problem import Gap
from tests import ROOT

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wundef")
LANGUAGES = {
    "gcc": ("-x", "c", "-std=c11"),
    "clang": ("-x", "c", "-std=c11"),
    "g++": ("-x", "c++", "-std=c++17"),
}


def compiler(name: str) -> str:
    """Its path. Where clang is not installed the test is skipped, but not in CI, which installs it."""
    path = shutil.which(name)
    if path is None:
        assert not os.environ.get("CI"), f"no {name}: `make compilers` installs it"
        pytest.skip(f"no {name}")
    return path


def compiled(name: str, text: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "main.c").write_text(text)
    command = [compiler(name), *LANGUAGES[name], *STRICT, *more, "-I", str(folder), str(folder / "main.c")]
    return subprocess.run([*command, "-o", str(folder / name)], capture_output=True, text=True, check=False)


def three() -> Plan:
    """a under b, then c over both: 24 bytes, by hand."""
    problem = make_problem(
        [0, 0, 2], [2, 2, 4], [8, 16, 20], names=["in put", "b/1", "in.put"], alignment=[4, 4, 8]
    )
    plan = make_plan(problem, "greedy_by_size")
    return replace(plan, offsets=np.array([16, 0, 0]))


def test_by_hand() -> None:
    text = c_header([CArena("arena", three())], "net", "net.csv")
    for line in (
        "#define NET_ARENA_BYTES 24u",
        "#define NET_IN_PUT_OFFSET 16u /* in put */",
        "#define NET_IN_PUT_BYTES 8u",
        "#define NET_B_1_OFFSET 0u /* b/1 */",
        "#define NET_IN_PUT_2_BYTES 20u",
        "NET_ASSERT(NET_IN_PUT_2_OFFSET + NET_IN_PUT_2_BYTES <= NET_ARENA_BYTES && "
        'NET_IN_PUT_2_OFFSET % 8u == 0u, "IN_PUT_2 lies in its arena");',
        "    X(IN_PUT_2, NET_IN_PUT_2_OFFSET, NET_IN_PUT_2_BYTES, 2, 4) \\",
        "NET_ASSERT(NET_B_1_OFFSET + NET_B_1_BYTES <= NET_IN_PUT_OFFSET, "
        '"B_1 and IN_PUT are live together");',
    ):
        assert line in text.splitlines()
    assert text.count("are live together") == 1


PROGRAM = """
#define NET_DEFINE_ARENAS
#include "plan.h"
#include <stdio.h>
#define ROW(name, offset, bytes, first, end) \\
    printf("%s %lu %lu %d %d\\n", #name, (unsigned long)(offset), (unsigned long)(bytes), first, end);
int main(void) {
    NET_ARENA_BUFFERS(ROW)
    int over = (int)((unsigned long)net_arena % 64u);
    printf("%lu %d %x\\n", (unsigned long)sizeof net_arena, over, NET_PLAN_ID);
    return NET_ARENA_AT(CONV1_1) == &net_arena[NET_CONV1_1_OFFSET] ? 0 : 1;
}
"""


@pytest.mark.parametrize("name", LANGUAGES)
def test_compilers_take_the_plan_of_a_graph_and_a_program_says_what_the_plan_says(
    name: str, tmp_path: Path
) -> None:
    plan = make_plan(load(ROOT / "example_graphs" / "resnet50.json"))
    problem = plan.problem
    problem = replace(problem, names=("conv1.1", *problem.names[1:]))
    plan = replace(plan, problem=problem)
    (tmp_path / "plan.h").write_text(c_header([CArena("arena", plan)], "net", "resnet50.json"))
    done = compiled(name, PROGRAM, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    ran = subprocess.run([str(tmp_path / name)], capture_output=True, text=True, check=True)
    *rows, last = [line.split() for line in ran.stdout.splitlines()]
    columns = (plan.offsets, problem.size, problem.start, problem.end)
    expected = np.stack(columns).T.tolist()
    assert [[int(each) for each in row[1:]] for row in rows] == expected
    assert last[:2] == [str(plan.arena_bytes), "0"]


def test_a_compiler_refuses_a_plan_that_overlaps_or_is_not_aligned_or_sticks_out(tmp_path: Path) -> None:
    plan = three()
    for offsets, said in (([8, 0, 0], "are live together"), ([18, 0, 0], "lies in its arena")):
        wrong = replace(plan, offsets=np.array(offsets))
        (tmp_path / "plan.h").write_text(c_header([CArena("arena", wrong)], "net", "wrong"))
        done = compiled("gcc", '#include "plan.h"\nint main(void) { return 0; }\n', tmp_path)
        assert done.returncode
        assert said in done.stderr
    text = c_header([CArena("arena", plan)], "net", "net").replace(
        "NET_ARENA_BYTES 24u", "NET_ARENA_BYTES 23u"
    )
    (tmp_path / "plan.h").write_text(text)
    assert (
        "lies in its arena"
        in compiled("gcc", '#include "plan.h"\nint main(void) { return 0; }\n', tmp_path).stderr
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(1, 6), st.integers(0, 5), st.integers(0, 12)), max_size=9
    )
)
@settings(max_examples=300, deadline=None)
def test_no_two_overlap_where_no_neighbours_do(rows: list[tuple[int, int, int, int]]) -> None:
    """Against all pairs, in plans that may overlap."""
    start, length, size, offsets = ([row[i] for row in rows] for i in range(4))
    problem = make_problem(start, [a + b for a, b in zip(start, length, strict=True)], size)
    plan = replace(make_plan(problem, "naive"), offsets=np.array(offsets, np.int64))
    pairs = list(neighbours(plan))

    def apart(one: int, other: int) -> bool:
        return offsets[one] + size[one] <= offsets[other] or offsets[other] + size[other] <= offsets[one]

    def together(one: int, other: int) -> bool:
        return problem.start[one] < problem.end[other] and problem.start[other] < problem.end[one]

    asserted = all(offsets[below] + size[below] <= offsets[above] for below, above in pairs)
    everyone = [index for index in range(len(rows)) if size[index]]
    fine = all(apart(a, b) for a in everyone for b in everyone if a < b and together(a, b))
    assert asserted == fine
    assert all(together(*pair) for pair in pairs)
    assert len(pairs) <= 2 * len(rows)


def test_names_are_told_apart() -> None:
    names = ["conv1", "conv.1", "conv-1", "1x", "", "ä", "arena", "x" * 99, "x" * 98]
    assert c_names(names)[:7] == ["CONV1", "CONV_1", "CONV_1_2", "B1X", "BUFFER", "BUFFER_2", "ARENA_2"]
    assert len({*c_names(names)}) == len(names)


def test_a_buffer_that_is_called_as_an_arena_has_another_name(tmp_path: Path) -> None:
    plan = make_plan(make_problem([0], [1], [8], names=["sram"]))
    text = c_header([CArena("sram", plan)], "net", "net")
    assert "#define NET_SRAM_2_BYTES 8u" in text
    (tmp_path / "plan.h").write_text(text)
    done = compiled("gcc", '#include "plan.h"\nint main(void) { return 0; }\n', tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_name_says_is_a_comment_and_no_code(tmp_path: Path) -> None:
    problem = make_problem([0], [1], [8], names=['a */ #error "no" /* ??/ \\'])
    text = c_header([CArena("arena", make_plan(problem))], "net", "*/ int x;")
    (tmp_path / "plan.h").write_text(text)
    done = compiled("gcc", '#include "plan.h"\nint main(void) { return 0; }\n', tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_c_cannot_say_is_refused() -> None:
    plan = three()
    with pytest.raises(InputError, match="prefix: found '1net', expected a name of C"):
        c_header([CArena("arena", plan)], "1net", "net")
    with pytest.raises(InputError, match="alignment 12, expected a power of two"):
        c_header([CArena("arena", make_plan(make_problem([0], [1], [8], alignment=12)))], "net", "net")
    with pytest.raises(InputError, match="24 bytes in sram, expected at most its 16"):
        c_header([CArena("sram", plan, capacity=16)], "net", "net")
    with pytest.raises(InputError, match="arena: found no section"):
        linker_script([CArena("arena", plan)])


def test_an_empty_plan_and_one_with_gaps(tmp_path: Path) -> None:
    gaps: dict[int, tuple[Gap, ...]] = {0: (Gap(1, 3),)}
    for problem in (make_problem([], [], []), make_problem([0, 1], [4, 3], [8, 8], gaps=gaps)):
        (tmp_path / "plan.h").write_text(c_header([CArena("arena", make_plan(problem))], "net", "net"))
        done = compiled(
            "gcc", '#define NET_DEFINE_ARENAS\n#include "plan.h"\nint main(void) { return 0; }\n', tmp_path
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_banks_are_arenas_in_sections_of_their_own(memplan, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rows = ["id,lower,upper,size,accessed", "a,0,2,64,640", "b,0,2,100,100", "c,2,4,64,64"]
    (tmp_path / "list.csv").write_text("\n".join([*rows, ""]))
    header, script = tmp_path / "net.h", tmp_path / "net.ld"
    asked = ("plan", tmp_path / "list.csv", "--bank", "fast-1=64", "--bank", "dram", "--emit-c", header)
    code, _, err = memplan(*asked, "--emit-ld", script)
    assert (code, err) == (0, "")
    text = header.read_text()
    assert "#define NET_FAST_1_BYTES 64u" in text
    assert "#define NET_FAST_1_CAPACITY 64u" in text
    assert "#define NET_DRAM_BYTES 100u" in text
    assert '__attribute__((section(".memplan.fast_1")))' in text
    assert "> FAST_1" in script.read_text()
    main = "int main(void) { return NET_FAST_1_AT(A) != net_fast_1; }"
    program = f'#define NET_DEFINE_ARENAS\n#include "net.h"\n{main}\n'
    done = compiled("gcc", program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([str(tmp_path / "gcc")], check=False).returncode == 0
    _, _, err = memplan(*asked, "--bank", "rom=1MiB,read-only")
    assert "without rom" in err


SCRIPT = """
ENTRY(main)
MEMORY { FLASH (rx) : ORIGIN = 0x10000, LENGTH = 64K
         SRAM (rw) : ORIGIN = 0x20000000, LENGTH = 4K
         DRAM (rw) : ORIGIN = 0x40000000, LENGTH = 64K }
SECTIONS {
  .text : { *(.text*) } > FLASH
  INCLUDE plan.ld
  .data : { *(.data*) *(.bss*) } > DRAM
  /DISCARD/ : { *(.comment) *(.note*) *(.eh_frame) }
}
"""


def test_a_linker_puts_each_arena_into_its_memory(tmp_path: Path) -> None:
    plan = three()
    arenas = [CArena("sram", plan, ".memplan.sram", 1024), CArena("dram", plan, ".memplan.dram", 4096)]
    (tmp_path / "plan.h").write_text(c_header(arenas, "net", "net"))
    (tmp_path / "plan.ld").write_text(linker_script(arenas))
    (tmp_path / "all.ld").write_text(SCRIPT)
    source = '#define NET_DEFINE_ARENAS\n#include "plan.h"\nint main(void) { return *NET_DRAM_AT(B_1_2); }\n'
    link = ("-nostdlib", "-static", "-no-pie", "-fno-pic", "-Wl,--build-id=none", "-L", str(tmp_path))
    done = compiled("gcc", source, tmp_path, *link, "-T", str(tmp_path / "all.ld"))
    assert done.returncode == 0, done.stderr
    told = subprocess.run(["nm", str(tmp_path / "gcc")], capture_output=True, text=True, check=True).stdout
    places = {name: int(at, 16) for at, _, name in map(str.split, told.splitlines())}
    assert (places["net_sram"], places["net_dram"]) == (0x20000000, 0x40000000)
    # Nothing of an arena is in the image.
    kinds = subprocess.run(
        ["readelf", "-SW", str(tmp_path / "gcc")], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split("]")[1].split()[1] for line in kinds.splitlines() if ".memplan." in line] == [
        "NOBITS",
        "NOBITS",
    ]
    (tmp_path / "plan.ld").write_text(linker_script(arenas).replace("<= 4096", "<= 16"))
    done = compiled("gcc", source, tmp_path, *link, "-T", str(tmp_path / "all.ld"))
    assert ".memplan.dram needs more than the 4096 bytes of dram" in done.stderr
