"""lock.py EXTRA …: print the pins of `requirements.lock` that memplan with these extras needs, for pip.

lock.py --write HASHED: make `requirements.lock` and `docs/licences.md` from HASHED, the constraints with
hashes as pip-compile writes them. What needs what, and the licences, it takes from the environment that it
runs in, in which all extras have to be installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
LICENCES = ROOT / "docs" / "licences.md"
LOCK_HEAD = """\
# What `make` installs: the versions of constraints.txt with the hashes of their files, made by `make lock`.
# Above each pin stand the extras of memplan that need it; "memplan" is memplan without extras. Of torch there
# are the builds of two indexes: `lock.py` takes the one without CUDA where pip finds it.
"""
LICENCES_HEAD = """\
# Licences of what memplan installs

Made by `make lock` from what the packages say of themselves. memplan itself is under Apache-2.0 and contains
none of them. "memplan" stands for those that are always needed, the others are needed by the extras named.

| package | version | licence | needed by |
|-|-|-|-|
"""


def main(arguments: list[str]) -> int:
    """Print the pins for the extras `arguments`, or make the two files anew."""
    if arguments[:1] == ["--write"]:
        write(pins(Path(arguments[1]).read_text()))
        return 0
    print("\n".join(chosen_pins(arguments)))
    return 0


def chosen_pins(extras: list[str]) -> list[str]:
    """The pins that memplan with `extras` needs, of each package the build that pip is to take here."""
    locked = pins(LOCK.read_text())
    return [
        pin
        for version, (pin, needed_by) in locked.items()
        if needed_by & {"memplan", *extras} and version == chosen_build(version, set(locked))
    ]


def chosen_build(version: str, locked: set[str]) -> str:
    """Of the `locked` builds of one version, "torch==2.13.0" and "torch==2.13.0+cpu", that which pip is to
    take here: one with a name of its own where some index has it."""
    name, _, number = version.partition("+")[0].partition("==")
    builds = [other for other in locked if other.startswith(f"{name}=={number}+")]
    if not builds:
        return version
    command = [sys.executable, "-m", "pip", "index", "versions", name]
    offered = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    here = [build for build in builds if build.partition("==")[2] in offered]
    return here[0] if here else f"{name}=={number}"


def pins(text: str) -> dict[str, tuple[str, set[str]]]:
    """Package and version → the pin with hashes, several lines, and the extras named above it."""
    entries = re.findall(r"(?m)^(?:# (.*)\n)?(\S+==\S+(?: \\\n +--hash=\S+)+)$", text)
    return {pin.split(" ", 1)[0]: (pin, set(extras.split(", "))) for extras, pin in entries}


def write(hashed: dict[str, tuple[str, set[str]]]) -> None:
    """Write the lock and the table of licences.

    An index has builds of torch that another has not: those that the lock has of the same version are kept.
    """
    old = pins(LOCK.read_text()) if LOCK.exists() else {}
    numbers = {version.partition("+")[0] for version in hashed}
    hashed |= {
        version: pin
        for version, pin in old.items()
        if version not in hashed and version.partition("+")[0] in numbers
    }
    needed_by: dict[str, set[str]] = {}
    for extra in distribution("memplan").metadata.get_all("Provides-Extra") or []:
        for name in closure("memplan", {extra}):
            needed_by.setdefault(name, set()).add(extra)
    for name in closure("memplan", set()) | {"setuptools"}:
        needed_by[name] = {"memplan"}
    locked, rows = LOCK_HEAD, LICENCES_HEAD
    for pinned in sorted(hashed):
        name, _, version = pinned.partition("==")
        if normalised(name) not in needed_by:
            continue
        extras = ", ".join(sorted(needed_by[normalised(name)]))
        locked += f"# {extras}\n{hashed[pinned][0]}\n"
        if "+" not in version:
            rows += f"| {normalised(name)} | {version} | {licence(name)} | {extras} |\n"
    LOCK.write_text(locked)
    LICENCES.write_text(rows)


def closure(name: str, extras: set[str]) -> set[str]:
    """The packages that `name` with `extras` needs, on whatever system: all that are installed here."""
    from packaging.requirements import Requirement

    needed: set[str] = set()
    waiting = [(name, frozenset(extras))]
    asked = set(waiting)
    while waiting:
        name, chosen = waiting.pop()
        for line in (installed(name).requires or []) if installed(name) else []:
            requirement = Requirement(line)
            if requirement.marker and not any(
                requirement.marker.evaluate({"extra": extra}) for extra in chosen or {""}
            ):
                continue
            step = (normalised(requirement.name), frozenset(requirement.extras))
            needed.add(step[0])
            if step not in asked:
                asked.add(step)
                waiting.append(step)
    return needed - {"memplan"}


def installed(name: str) -> Distribution | None:
    """The package as it is installed here."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licence(name: str) -> str:
    """The licence in the words of the package: its SPDX expression, else its classifiers, else its text's
    first line, in a field or a file; "" for one that is not installed here."""
    package = installed(name)
    if package is None:
        return ""
    fields = {name: package.metadata.get_all(name) or [""] for name in ("License-Expression", "License")}
    classified = [
        line.rpartition(" :: ")[2]
        for line in package.metadata.get_all("Classifier") or []
        if line.startswith("License :: ")
    ]
    told = fields["License-Expression"][0] or ", ".join(classified) or fields["License"][0]
    files = [file for file in package.files or () if file.name == package.metadata["License-File"]]
    return (told or "".join(file.read_text() for file in files)).partition("\n")[0]


def normalised(name: str) -> str:
    """The name as indexes know it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
