"""Byte counts and shares as people read them; errors on one line."""

from __future__ import annotations

import pytest

from memplan_engine.errors import InputError, MissingDependencyError, one_line
from memplan_engine.units import format_bytes, format_exactly, format_percent, parse_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1034, "1.01 KiB"),
        (2**20 - 1, "1 MiB"),
        (2**20 - 2**10, "1023 KiB"),
        (38_315_520, "36.54 MiB"),
        (2**30, "1 GiB"),
        (100 * 2**40, "100 TiB"),
        (2**63 - 1, "8 EiB"),
        (2**80, "1048576 EiB"),
        (-1536, "−1.5 KiB"),
    ],
)
def test_bytes_are_in_binary_units(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0, "0.0 %"),
        (0.0691, "6.9 %"),
        (1, "100.0 %"),
        (2.5, "250.0 %"),
        (0.001, "0.1 %"),
        (0.0004, "0.04 %"),
        (1.8e-8, "< 0.001 %"),
        (1e-5, "0.001 %"),
        (-1e-9, "> −0.001 %"),
        (-0.25, "−25.0 %"),
    ],
)
def test_shares_never_round_to_nothing(ratio, text):
    assert format_percent(ratio) == text


def test_an_input_error_says_where_what_and_what_was_expected():
    error = InputError("a.csv", "line 3", "'x'", "a number")
    assert str(error) == "a.csv: line 3: found 'x', expected a number"
    assert (error.source, error.place, error.found, error.expected) == ("a.csv", "line 3", "'x'", "a number")
    assert str(InputError("a.csv", "", "nothing", "bytes")) == "a.csv: found nothing, expected bytes"
    assert error.exit_code == 2


def test_what_files_say_stays_on_one_line_and_cannot_reach_the_terminal():
    assert one_line("a\n\x1b[31mb\t\u202ec") == "a [31mb c"
    assert one_line("x" * 1000) == "x" * 599 + "…"
    assert len(str(InputError("f", "", "y" * 5000, "less"))) == 600


def test_a_missing_package_comes_with_the_command_that_installs_it():
    message = str(MissingDependencyError("torch", "torch", "capturing a model"))
    assert message == "capturing a model needs torch: pip install 'memplan[torch]'"


def test_a_part_of_a_byte_that_a_unit_comes_to_is_left_out() -> None:
    # 21.17 × 2^30 = 22,731,114,414.08
    assert parse_bytes("21.17GiB") == 22_731_114_414
    assert (parse_bytes("0.3KiB"), parse_bytes("1.0001kB"), parse_bytes("1.6 MiB")) == (307, 1000, 1_677_721)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(27 * 1024, "27 KiB"), (27_649, "27 KiB (27,649 B)"), (3 << 29, "1.5 GiB"), (9, "9 B")],
)
def test_no_unit_says_more_than_was_given(nbytes: int, text: str) -> None:
    assert format_exactly(nbytes) == text
