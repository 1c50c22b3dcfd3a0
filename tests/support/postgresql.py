"""A PostgreSQL server of the tests' own, on a socket in a folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PLACES = "/usr/lib/postgresql/*/bin"
"""Where Debian has the server, a folder for each version; what users run is on the path."""
USERS = ("postgres", "nobody")
"""Who runs the server where the tests run as root, which PostgreSQL refuses."""


def find_server() -> Path | None:
    """The folder with `initdb` and `postgres`, the newest of several; None without one."""
    folders = [folder for folder in Path("/").glob(PLACES[1:]) if (folder / "initdb").exists()]
    on_path = shutil.which("initdb")
    folders += [Path(os.path.realpath(on_path)).parent] if on_path else []
    versions = {folder: [int(each) for each in re.findall(r"\d+", str(folder))] for folder in folders}
    return max(folders, key=versions.__getitem__, default=None)


@dataclass(frozen=True)
class Server:
    folder: Path
    programs: Path
    user: str | None
    process: subprocess.Popen[bytes]

    def new_database(self) -> str:
        """The URL of an empty one."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.run("createdb", name)
        return f"postgresql://memplan@/{name}?host={self.folder}"

    def run(self, program: str, *arguments: str) -> str:
        command = [str(self.programs / program), "-h", str(self.folder), "-U", "memplan", *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, user=self.user, cwd="/")
        return done.stdout


def server_user() -> str | None:
    """Who is to run the server: None for whoever runs the tests."""
    if os.getuid() != 0:
        return None
    import pwd

    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in USERS if name in names)


@contextmanager
def serve_postgresql(programs: Path) -> Iterator[Server]:
    """A server that has no port, only a socket, and lets everybody on this machine's socket in."""
    # A socket's path may have 107 letters: pytest's own folders are too deep.
    with tempfile.TemporaryDirectory(prefix="memplan-pg-", dir="/tmp") as name:
        folder, user = Path(name), server_user()
        if user:
            shutil.chown(folder, user)
        folder.chmod(0o755)
        data = folder / "data"
        subprocess.run(
            [str(programs / "initdb"), "-D", str(data), "-U", "memplan", "-A", "trust", "-E", "UTF8",
             "--locale=C", "-N"],
            check=True, capture_output=True, user=user, cwd="/",
        )  # fmt: skip
        process = subprocess.Popen(
            [str(programs / "postgres"), "-D", str(data), "-k", str(folder), "-c", "listen_addresses=",
             "-c", "fsync=off", "-c", "max_connections=50", "-c", "autovacuum=off"],
            user=user, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            server = Server(folder, programs, user, process)
            _wait_for(server)
            yield server
        finally:
            # At once, without waiting for whoever is still connected.
            process.send_signal(signal.SIGQUIT)
            process.wait(30)


def _wait_for(server: Server) -> None:
    ready = [str(server.programs / "pg_isready"), "-h", str(server.folder), "-t", "30", "-d", "postgres"]
    for _ in range(200):
        if server.process.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended at once with code {server.process.returncode}")
        if subprocess.run(ready, capture_output=True, check=False).returncode == 0:
            return
        signal.sigtimedwait([], 0.05)
    raise RuntimeError("PostgreSQL did not get ready")


if __name__ == "__main__":
    found = find_server()
    if found is None:
        sys.exit("no PostgreSQL server")
    print(found)
