"""The allocator's settings: read as torch reads them, refused as it refuses them, written to be copied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan_engine.allocator.settings import AllocatorSettings, parse_settings
from memplan_engine.errors import InputError

GOOD = [
    "",
    "max_split_size_mb:20",
    "max_split_size_mb:128, expandable_segments:True",
    "expandable_segments:False",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]",
    "roundup_power2_divisions:[256:1,512:2,>:4]",
    "garbage_collection_threshold:0.8",
    "large_segment_size_mb:30,max_split_size_mb:30",
    "max_non_split_rounding_mb:30",
    "pinned_use_background_threads:True",
]
BAD = [
    ("max_split_size_mb:19", "max_split_size_mb"),
    ("max_split_size_mb:x", "max_split_size_mb"),
    ("max_split_size_mb:", "max_split_size_mb"),
    ("max_split_size_mb 128", "found '128', expected ':'"),
    ("expandable_segments:true", "True or False"),
    ("roundup_power2_divisions:3", "power of two"),
    ("roundup_power2_divisions:0", "power of two"),
    ("roundup_power2_divisions:[256:3]", "power of two"),
    ("roundup_power2_divisions:[100:4]", "power of two"),
    ("roundup_power2_divisions:[64:8,128:4", "the end"),
    ("garbage_collection_threshold:0", "above 0 and below 1"),
    ("garbage_collection_threshold:1.0", "above 0 and below 1"),
    ("large_segment_size_mb:10", "at least 11"),
    ("large_segment_size_mb:30,max_split_size_mb:25", "at least 30"),
    ("max_non_split_rounding_mb:19", "at least 20"),
]


def test_by_hand() -> None:
    found = parse_settings(
        "max_split_size_mb:128,roundup_power2_divisions:[64:8,128:2,>:1],expandable_segments:True"
    )
    assert (found.max_split_size_mb, found.expandable_segments) == (128, True)
    # Sizes below 64 MiB as from 64 MiB on, then 2 from 128 MiB on, then 1.
    assert found.roundup_power2_divisions == (8,) * 7 + (2,) + (1,) * 8


@pytest.mark.parametrize("text", GOOD)
def test_what_torch_takes_is_taken(text: str) -> None:
    _torch_reads(text)
    parse_settings(text)


@pytest.mark.parametrize(("text", "says"), BAD)
def test_what_torch_refuses_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        _torch_reads(text)
    with pytest.raises(InputError, match=says) as error:
        parse_settings(text)
    assert "\n" not in str(error.value)


def test_what_is_unknown_is_refused_with_what_there_is() -> None:
    with pytest.raises(InputError, match=r"'max_split_mb', expected one of max_split_size_mb, "):
        parse_settings("max_split_mb:128")
    with pytest.raises(InputError, match="no other backend is simulated"):
        parse_settings("backend:cudaMallocAsync")


SETTINGS = st.builds(
    AllocatorSettings,
    max_split_size_mb=st.none() | st.integers(64, 4096),
    max_non_split_rounding_mb=st.none() | st.integers(64, 4096),
    large_segment_size_mb=st.integers(11, 64),
    roundup_power2_divisions=st.lists(st.sampled_from([0, 1, 2, 4, 8]), min_size=16, max_size=16).map(tuple),
    garbage_collection_threshold=st.sampled_from([0.0, 0.25, 0.8]),
    expandable_segments=st.booleans(),
    per_process_memory_fraction=st.sampled_from([1.0, 0.5]),
)


@given(settings=SETTINGS)
def test_what_is_written_is_read_again(settings: AllocatorSettings) -> None:
    assert parse_settings(str(settings)) == settings


def _torch_reads(text: str) -> None:
    """Torch's own parser, which the CPU build has too; the settings go back to what they were."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch._C, "_accelerator_setAllocatorSettings"):
        pytest.skip("this torch does not say what it takes")
    try:
        torch._C._accelerator_setAllocatorSettings(text)
    finally:
        torch._C._accelerator_setAllocatorSettings("large_segment_size_mb:20,expandable_segments:False")


@pytest.mark.parametrize(
    "line",
    [
        'PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:128"',
        "export PYTORCH_ALLOC_CONF=max_split_size_mb:128",
        "PYTORCH_CUDA_ALLOC_CONF='max_split_size_mb:128' ",
    ],
)
def test_the_line_that_is_printed_is_read(line: str) -> None:
    assert parse_settings(line) == parse_settings("max_split_size_mb:128")
