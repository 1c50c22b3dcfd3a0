"""What Linux says of other processes."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit


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
