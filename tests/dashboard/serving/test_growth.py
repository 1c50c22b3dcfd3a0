"""A server that people use for days: what a thousand interactions and closed tabs leave behind."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("websockets")
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

from tests import ROOT
from tests.support.browser import serve
from tests.support.processes import memory, server_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc"),
]
STRATEGIES = ("linear_scan", "greedy_by_size", "greedy_by_breadth", "naive")
ADDRESSES = [
    f"doc=example:{model}&strategy={strategy}{more}"
    for model in ("gpt2", "resnet50")
    for strategy in STRATEGIES
    for more in ("", "&tab=All+buffers", "&find=mul")
]
FIRST, THEN = 1_000, 1_000
"""Interactions before the memory is looked at first, when all caches are full, and after that."""
A_TAB = 40
"""Interactions until a tab is closed and another one opened."""


def interact(url: str, times: int) -> set[int]:
    """As many runs of the page as somebody causes who goes through these addresses, tab after tab; the bytes
    that each of them sends."""
    sizes = set()
    addresses = islice(cycle(ADDRESSES), times)
    while tab := list(islice(addresses, A_TAB)):
        with connect(f"{url.replace('http', 'ws')}/_stcore/stream", proxy=None, max_size=None) as browser:
            for address in tab:
                wanted = BackMsg()
                wanted.rerun_script.query_string = address
                # Back and Forward: any other run keeps to what its session has chosen.
                wanted.rerun_script.is_history_navigation = True
                browser.send(wanted.SerializeToString())
                sent = run_to_the_end(browser)
                sizes.add(sent)
    return sizes


def run_to_the_end(browser: ClientConnection) -> int:
    """The bytes that a run of the page sends."""
    sent = 0
    while True:
        raw = browser.recv(60)
        sent += len(raw)
        message = ForwardMsg.FromString(raw)
        assert message.delta.new_element.WhichOneof("type") != "exception"
        if message.WhichOneof("type") == "script_finished" and not message.script_finished:
            return sent


@pytest.mark.quarantine
def test_a_thousand_interactions_leave_nothing_behind():
    with serve(ROOT / "dashboard" / "app.py") as url:
        server = server_of(url)
        assert len(interact(url, FIRST)) > len(ADDRESSES) / 2, "the addresses are not followed"
        before = memory(server, "VmRSS")
        interact(url, THEN)
        after = memory(server, "VmRSS")
    print(f"{before:,} bytes resident, then {after:,}")
    assert after < 1.03 * before
