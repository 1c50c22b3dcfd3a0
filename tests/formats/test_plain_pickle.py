"""The unpickler of plain data: the same values as pickle's, and nothing else, from no file whatever."""

from __future__ import annotations

import io
import math
import os
import pickle
import pickletools
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memplan_engine import InputError
from memplan_engine.formats.allocator_files import plain_pickle
from memplan_engine.formats.allocator_files.pickle_codes import MAX_NUMBER_BYTES
from memplan_engine.formats.allocator_files.pickle_refusals import check_tree
from memplan_engine.formats.allocator_files.plain_pickle import Machine, load_plain, read_pickle

PROTOCOLS = (2, 3, 4, 5)
PLAIN = (type(None), bool, int, float, str, bytes, list, tuple, dict, set)
RAN: list[str] = []
"""What a pickle that was really run would leave here."""


def note(what: str) -> str:
    """What hostile pickles try to call."""
    RAN.append(what)
    return what


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return note, ("ran",)


def read(data: bytes, reducer: Any = None) -> Any:
    return Machine(io.BytesIO(data), "file.pickle", len(data), reducer).run()


def refusal(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        check_tree(read(data), "file.pickle", 1000)
    message = str(caught.value)
    assert message.startswith("file.pickle")
    assert "\n" not in message
    return message


keys = st.one_of(
    st.text(max_size=5), st.integers(-(2**59), 2**59), st.booleans(), st.none(), st.tuples(st.integers(0, 9))
)
numbers = st.one_of(
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**31 - 1, 2**31, -(2**31), 255, 256, 65535, 65536, 2**2039, 2**2040, -(2**4000)]),
    st.floats(allow_nan=False),
)
texts = st.one_of(st.text(), st.text(min_size=250, max_size=300), st.sampled_from(["\ud800", "é" * 200]))
shared = st.sampled_from([[1, "one"], {"name": "f", "line": 3}, ("a", "b")])


def plain(protocol: int) -> st.SearchStrategy[Any]:
    leaves = [st.none(), st.booleans(), numbers, texts, shared]
    leaves += [st.binary(), st.binary(min_size=250, max_size=300)] if protocol >= 3 else []
    leaves += [st.sets(keys)] if protocol >= 4 else []

    def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.lists(inner), st.dictionaries(keys, inner), st.lists(inner, max_size=4).map(tuple)
        )

    return st.recursive(st.one_of(leaves), containers, max_leaves=20)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
def test_the_same_value_as_pickle_gives(protocol: int, data: st.DataObject) -> None:
    value = data.draw(plain(protocol))
    written = pickle.dumps(value, protocol)
    assert read(written) == pickle.loads(written)
    assert repr(read(written)) == repr(value) or isinstance(value, set | dict | list | tuple)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data(), chunk=st.integers(1, 40))
def test_where_the_file_is_cut_into_pieces_makes_no_difference(
    protocol: int, data: st.DataObject, chunk: int
) -> None:
    written = pickle.dumps([data.draw(plain(protocol)), "x" * 700, list(range(600))], protocol)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plain_pickle, "CHUNK", chunk)
        assert read(written) == pickle.loads(written)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_containers_of_more_than_a_batch_and_values_shared_among_them(protocol: int) -> None:
    frame, name = {"name": "f", "line": 1}, "stack"
    value = [
        [frame] * 2500,
        {str(n): [frame, frame, name] for n in range(1500)},
        [[]] * 3,
        [frame],
        (frame,) * 9,
    ]
    found = read(pickle.dumps(value, protocol))
    assert found == value
    assert found[0][0] is found[0][2499] is found[1]["3"][1]


def test_the_python_pickler_and_optimized_pickles_too() -> None:
    value = {"a": [1, [2.5, None]], "b": ("x", "x"), "c": [{"k": n} for n in range(1001)]}
    for protocol in PROTOCOLS:
        file = io.BytesIO()
        pickle._Pickler(file, protocol).dump(value)  # type: ignore[attr-defined]
        assert read(file.getvalue()) == value
        assert read(pickletools.optimize(file.getvalue())) == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_truncation_says_so(protocol: int) -> None:
    value = {"a": [1, -5, 2**40, 1.5], "t": (1, (2, 3)), "long text": "é" * 90, "n": [None, True, 70000]}
    written = pickle.dumps(value, protocol)
    for end in range(1, len(written)):
        assert "cut short" in refusal(written[:end]) or "more than the file has" in refusal(written[:end])


@pytest.mark.parametrize("ways", [12, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_flipped_bytes_give_plain_data_or_an_error(protocol: int, ways: int) -> None:
    """Every byte of a small pickle in so many other ways, and pairs of bytes: never another exception."""
    chance = random.Random(protocol)
    value = {"device_traces": [[{"action": "alloc", "frames": [{"line": n}], "x": 2**33}] for n in range(3)]}
    written = bytearray(pickle.dumps(value, protocol))
    for place in range(len(written)):
        for other in chance.sample(range(256), ways):
            broken = bytearray(written)
            broken[place] = other
            broken[chance.randrange(len(broken))] ^= chance.choice((0, 1 << chance.randrange(8)))
            try:
                found = read(bytes(broken))
                check_tree(found, "file.pickle", 10_000)
            except InputError:
                continue
            assert type(found) in PLAIN
    assert not RAN


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_is_refused_by_the_name_of_its_global_and_nothing_runs(protocol: int) -> None:
    message = refusal(pickle.dumps({"a": Evil()}, protocol))
    assert f"the global {note.__module__}.note, expected plain data" in message
    assert "byte " in message
    assert not RAN
    pickle.loads(pickle.dumps({"a": Evil()}, protocol))
    assert RAN.pop() == "ran", "the pickle would have run something"


def is_swallowed(whole: bytes) -> bool:
    """Whether Python's own reader finds a whole pickle in which no global is left: what spells one lies in a
    text or number that begins before it."""
    try:
        codes = list(pickletools.genops(whole))
    except ValueError:
        return False
    ends_there = codes[-1][0].name == "STOP" and codes[-1][2] == len(whole) - 1
    return ends_there and not any(code.name in ("GLOBAL", "INST", "STACK_GLOBAL") for code, _, _ in codes)


@example(module="0", name="system", before=b"\x8a\x0e", protocol=2)
@given(
    module=st.text(st.characters(codec="ascii", exclude_characters="\n"), min_size=1, max_size=30),
    name=st.sampled_from(["system", "eval", "Popen", "x"]),
    before=st.binary(max_size=3),
    protocol=st.sampled_from(PROTOCOLS),
)
def test_globals_of_every_writing_are_refused(module: str, name: str, before: bytes, protocol: int) -> None:
    head = b"\x80" + bytes([protocol])
    written = module.encode() + b"\n" + name.encode() + b"\n"
    pair = b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name))
    calls = (
        b"c" + written + b"(U\x02lstR.",
        b"(U\x02ls" + b"i" + written + b".",
        pair + b"\x93)\x81.",
        b"(" + pair + b"\x93l.",
    )
    for call in calls:
        assert "the global" in refusal(head + call)
        whole = head + before + call
        try:
            found = read(whole)
        except InputError:
            continue
        assert is_swallowed(whole)
        assert type(found) in PLAIN
    assert not RAN


def test_a_text_that_looks_like_a_global_is_one_no_more_than_any_text():
    """A number of 14 bytes whose bytes spell what would be one, and no more: nothing is named."""
    whole = b"\x80\x02\x8a\x0e(\x8c\x010\x8c\x06system\x93l."
    assert is_swallowed(whole)
    assert type(read(whole)) is int
    assert not is_swallowed(b"\x80\x02(\x8c\x010\x8c\x06system\x93l.")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (b"NR", "REDUCE"), (b"Nb", "BUILD"), (b"(No", "OBJ"), (b"NN\x81", "NEWOBJ"),
        (b"NNN\x92", "NEWOBJ_EX"), (b"\x82\1", "EXT1"), (b"\x83\1\0", "EXT2"),
        (b"\x84\1\0\0\0", "EXT4"), (b"Pid\n", "PERSID"),
        (b"NQ", "BINPERSID"), (b"\x96" + bytes(8), "BYTEARRAY8"), (b"\x97", "NEXT_BUFFER"),
        (b"N\x98", "READONLY_BUFFER"), (b"(\x91", "FROZENSET"), (b"I1\n", "'I' of protocol 0"),
        (b"V\n", "'V' of protocol 0"), (b"p0\n", "'p' of protocol 0"),
        (b"\xff", "0xff, which is not an instruction"),
    ],
)  # fmt: skip
def test_every_other_instruction_is_refused_by_name_and_place(code: bytes, name: str) -> None:
    message = refusal(b"\x80\4NN" + code + b".")
    assert name in message
    # The instruction is the last one but for its arguments.
    assert f"byte {4 + code.find(code.lstrip(b'N('))}" in message


def test_all_instructions_are_either_known_or_refused() -> None:
    """Every instruction that Python's own unpickler knows: none is left to chance."""
    for code in (each.code.encode("latin-1") for each in pickletools.opcodes):
        try:
            message = repr(read(b"\x80\4" + code + bytes(30) + b"."))
        except InputError as error:
            message = str(error)
        assert "byte 2: found 0x" not in message, code


def test_numbers_and_texts_larger_than_the_caps() -> None:
    huge = struct.pack("<I", MAX_NUMBER_BYTES + 1)
    assert "a number of 4,097 bytes, expected at most 4,096" in refusal(
        b"\x80\2\x8b" + huge + bytes(5000) + b"."
    )
    assert "byte 2: found 4,294,967,295 bytes announced" in refusal(b"\x80\2X\xff\xff\xff\xff.")
    assert "announced, more than the file has" in refusal(b"\x80\4\x8e" + b"\xff" * 8 + b".")
    assert "cut short" in refusal(b"\x80\4\x95" + b"\xff" * 8 + b"N.")
    assert "protocol 6, expected 2 to 5" in refusal(b"\x80\6N.")
    assert "a pickle of protocol 2 to 5" in refusal(b"(lp0\n.")
    assert "byte 4: found 2 bytes after the end" in refusal(b"\x80\4N.ab")
    assert "0xff in a text" in refusal(b"\x80\4\x8c\2a\xff.")


def test_the_billion_laughs_are_counted_and_not_laughed(tmp_path: Path) -> None:
    value: list[Any] = ["ha"] * 10
    for _ in range(40):
        value = [value] * 10
    path = tmp_path / "laughs.pickle"
    path.write_bytes(pickle.dumps(value))
    assert path.stat().st_size < 3000
    with pytest.raises(InputError, match="at most 10,000,000 values in all"):
        load_plain(path)


def test_what_contains_itself_is_no_plain_data(tmp_path: Path) -> None:
    value: list[Any] = [1]
    value.append({"me": value})
    path = tmp_path / "self.pickle"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(InputError, match="that contains itself"):
        load_plain(path)
    both = [[1]] * 2
    path.write_bytes(pickle.dumps([both, both]))
    assert load_plain(path) == [both, both]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"]" * 200_000 + b"a" * 199_999, None),
        (b"(" * 2_000_000, "nested more than 1,000 deep"),
        (b")" + b"\x85" * 200_000, "tuples nested more than 100 deep"),
        (b"}(K\1\x85\x85NuN", "found a tuple as a key"),
        (b"}(]NuN", "found a list as a key"),
        (b"}((" + b"K\1" * 9 + b"tNuN", "found a tuple as a key"),
        (b"}(\x8a\x09" + b"\1" * 9 + b"NuN", "as a key"),
        (b"\x8f(}\x90", "found a dict as a key"),
        (b"]K\1NsN", "an item for a list"),
        (b"}(Nu", "keys and values"),
        (b"N(Ne", "items for None"),
        (b"h\0", "a reference to value 0, which was not there yet"),
        (b"j\xff\xff\xff\xff", "a reference to value 4,294,967,295"),
        (b"0", "without what it works on"),
        (b"u", "without what it works on"),
        (b"NN", "an end with 1 values left over"),
    ],
)
def test_depth_keys_and_what_is_not_there(code: bytes, message: str | None) -> None:
    data = b"\x80\4" + code + b"."
    if message is None:
        with pytest.raises(InputError, match="values in all"):
            check_tree(read(data), "file.pickle", 1000)
    else:
        assert message in refusal(data)


def test_a_memo_with_gaps_and_numbers_put_twice() -> None:
    """As Python 2 wrote them, and as nobody does: the place in the memo says nothing of how large it is."""
    assert read(b"\x80\2(K\1r\xff\xff\xff\xffK\2q\1j\xff\xff\xff\xffh\1t.") == (1, 2, 1, 2)
    assert read(b"\x80\2(K\1q\0K\2q\0](h\0h\0eK\3q\0](h\0h\0et.") == (1, 2, [2, 2], 3, [3, 3])


def test_a_file_of_lists_of_nothing_stays_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pickle, "MAX_KEPT_BYTES", 50 << 20)
    data = b"\x80\4(" + b"]" * 2_000_000 + b"l."
    machine = Machine(io.BytesIO(data), "file.pickle", len(data))
    with pytest.raises(InputError, match="values to keep so far, expected at most 50 MiB of them"):
        machine.run()
    assert len(machine.stack) < 1_250_000


class Sums:
    """Keeps of each list of numbers its sum, and of a dict with a "sum" nothing."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def close_list(self, items: list[Any]) -> Any | None:
        return sum(items) if all(type(item) is int for item in items) else None

    def close_dict(self, items: list[Any]) -> Any | None:
        if "sum" not in items[::2]:
            return None
        self.seen.append(items)
        return "row"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_reducer_takes_lists_and_dicts_as_they_close(protocol: int) -> None:
    numbers = [1, 2, 3]
    row = {"sum": numbers, "n": 1}
    value = {"rows": [row, {"sum": [4, 5], "n": 2}, row], "other": {"again": numbers}, "one": [7], "none": []}
    sums = Sums()
    assert read(pickle.dumps(value, protocol), sums) == {
        "rows": ["row", "row", "row"],
        "other": {"again": 6},
        "one": 7,
        "none": [],
    }
    assert sums.seen == [["sum", 6, "n", 1], ["sum", 9, "n", 2]]


def test_what_was_reduced_is_still_there_for_those_that_refer_to_it() -> None:
    """A list of one item is filled without a mark; and a memo may begin anywhere, as Python 2's did."""
    one = [7]
    assert read(pickle.dumps({"a": one, "b": one}), Sums()) == {"a": 7, "b": [7]}
    far = b"\x80\2(]q\1(K\1K\2eh\1K\3q\2](h\2h\2e]q\3(h\2h\2eh\3t."
    assert read(far, Sums()) == (3, [1, 2], 3, 6, 6, [3, 3])


def test_a_reducer_sees_no_list_that_is_not_whole() -> None:
    assert read(pickle.dumps([1] * 999), Sums()) == 999
    assert read(pickle.dumps([1] * 1500), Sums()) == [1] * 1500


def test_progress_and_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "some.pickle"
    path.write_bytes(pickle.dumps(["x" * 3_000_000, list(range(10_000))]))
    told: list[tuple[int, int]] = []
    read_pickle(path, progress=lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert len(told) >= 2
    assert [total for _, total in told] == [size] * len(told)
    assert told[-1][0] == size
    assert told == sorted(told)
    with pytest.raises(InputError, match="no such file"):
        read_pickle(tmp_path / "none.pickle")
    assert math.isnan(read(pickle.dumps(math.nan)))
    assert os.path.exists(path)
