"""check_wheel_contents.py WHEEL CHECKOUT: the wheel holds every file of the packages, and nothing besides."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGES = {
    "memplan_engine": "memplan_engine",
    "dashboard": "memplan_dashboard",
    "example_graphs": "memplan_examples",
}
"""The folders, and the names under which they are installed."""


def package_files(checkout: Path) -> set[str]:
    """Return the packages' files that git tracks or would track, as paths with forward slashes."""
    command = ["git", "-C", str(checkout), "ls-files", "-co", "--exclude-standard", "--", *PACKAGES]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    folders = {name: name.partition("/") for name in listed if (checkout / name).is_file()}
    return {f"{PACKAGES[folder]}/{rest}" for folder, _, rest in folders.values()}


def main(wheel: str, checkout: str) -> int:
    """Print what differs between the wheel and the checkout; return 0 when nothing does."""
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = package_files(Path(checkout))
    for name in sorted(expected - shipped):
        print(f"{wheel}: lacks {name}")
    for name in sorted(shipped - expected):
        print(f"{wheel}: holds {name}, which is not a file of the packages")
    return int(shipped != expected)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
