"""Runs the steps of a Dockerfile in a folder, where there is no container engine.

A step sees the folder as its root where an instruction names a path (WORKDIR, COPY, HOME); what a RUN does
beyond its working directory is the machine's, so that commands that change the system get stand-ins.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, what follows it), with continued lines joined and without comments."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    pairs = [line.split(maxsplit=1) for line in "\n".join(lines).replace("\\\n", " ").splitlines()]
    return [(name.upper(), rest) for name, rest in pairs]


def context(files: list[str], ignore: str) -> list[str]:
    """Of `files`, paths in the build's context, those that `.dockerignore` leaves: the last match counts."""

    def kept(path: str) -> bool:
        keep = True
        for pattern in (line for line in ignore.splitlines() if line and not line.startswith("#")):
            name = pattern.removeprefix("!")
            parents = [PurePosixPath(path), *PurePosixPath(path).parents]
            if name == "*" or any(
                str(part) == name or (name.startswith("**/") and part.name == name[3:]) for part in parents
            ):
                keep = pattern.startswith("!")
        return keep

    return [path for path in files if kept(path)]


@dataclass
class Built:
    """A container's file system below `root`, and what it starts with."""

    root: Path
    programs: tuple[Path, ...]
    """Folders searched for commands, before the system's."""
    user: int | None = None
    """Whose steps run from USER on; None where the machine cannot run them as somebody else."""
    folder: str = "/"
    users: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    exposed: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def below(self, path: str) -> Path:
        """Where an absolute path, or one from the working directory, lies."""
        return self.root / str(PurePosixPath(self.folder, path)).lstrip("/")

    def environment(self) -> dict[str, str]:
        """The variables of a step; there is no network for pip."""
        path = os.pathsep.join([*map(str, self.programs), "/usr/bin", "/bin"])
        home = self.below(self.variables.get("HOME", "/root"))
        return {**self.variables, "PATH": path, "HOME": str(home), "PIP_NO_INDEX": "1", "LC_ALL": "C.UTF-8"}

    def start(self, line: list[str], **options: object) -> subprocess.Popen[str]:
        """Start `line` as a step would, as the user of the moment."""
        user = self.user if self.users else None
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            line,
            cwd=self.below("."),
            env=self.environment(),
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )

    def run(self, line: list[str]) -> tuple[int, str]:
        """The exit code of `line`, and what it prints."""
        with self.start(line) as process:
            printed, _ = process.communicate()
        return process.returncode, printed

    def step(self, name: str, rest: str, source: Path, files: list[str]) -> None:
        """Follow one instruction; AssertionError where it fails or is not known."""
        if name == "WORKDIR":
            self.folder = str(PurePosixPath(self.folder, rest))
            self.below(".").mkdir(parents=True, exist_ok=True)
        elif name in ("ARG", "ENV"):
            self.variables |= dict(each.split("=", 1) for each in shlex.split(rest))
        elif name == "COPY":
            self.copy(rest, source, files)
        elif name == "RUN":
            code, printed = self.run(["/bin/sh", "-c", rest])
            assert code == 0, f"RUN {rest}\n{printed}"
        elif name == "USER":
            self.users.append(rest)
        elif name == "EXPOSE":
            self.exposed += rest.split()
        elif name == "HEALTHCHECK":
            self.health = json.loads(rest[rest.index("[") :])
        elif name in ("ENTRYPOINT", "CMD"):
            setattr(self, {"ENTRYPOINT": "entrypoint", "CMD": "command"}[name], json.loads(rest))
        else:
            assert name == "FROM", f"{name} is not an instruction that is run here"

    def copy(self, rest: str, source: Path, files: list[str]) -> None:
        """COPY: files of the context, or what lies in its folders."""
        *names, target = rest.split()
        assert target.endswith("/") or target == "."
        for name in names:
            chosen = [path for path in files if name == "." or path == name or path.startswith(f"{name}/")]
            assert chosen, f"COPY {name}: not in the context"
            for path in chosen:
                inside = Path(path).name if path == name else path.removeprefix(f"{name}/")
                place = self.below(target) / inside
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / path, place)
