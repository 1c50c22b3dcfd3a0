"""What processes take."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

PEAK_KIB = """
def peak_kib():
    import pathlib, resource, sys
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
"""
"""For scripts: the most memory that their process has held. Not `ru_maxrss`, which on Linux a process
inherits from the one that started it."""


def server_of(url: str) -> Path:
    """The /proc folder of the process that serves the dashboard at `url`."""
    words = {b"memplan_dashboard.serving.server", f"--port={urlsplit(url).port}".encode()}
    (server,) = (folder for folder in Path("/proc").glob("[0-9]*") if words <= _words_of(folder))
    return server


def _words_of(process: Path) -> set[bytes]:
    try:
        return set((process / "cmdline").read_bytes().split(b"\0"))
    except OSError:
        return set()


def memory(process: Path, field: str) -> int:
    """Bytes: "VmRSS", what is resident now, or "VmHWM", the most that was."""
    return int((process / "status").read_text().partition(f"{field}:")[2].split()[0]) * 1024


def is_running(process: int) -> bool:
    """Return whether there is a process of this number that has not ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children_of(process: int) -> set[int]:
    """Return the numbers of the processes that `process` has started and not waited for."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == process:
            found.add(int(stat.parent.name))
    return found
