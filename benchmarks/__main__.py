"""`python -m benchmarks [name …]`: run the benchmarks, each of which prints a table."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def main() -> None:
    """Run those that are named, or all of them."""
    known = {path.stem: path for path in sorted(Path(__file__).parent.glob("[!_]*.py"))}
    names = sys.argv[1:] or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
    for name in names:
        print(f"\n== {name}")
        sys.argv = [str(known[name])]
        runpy.run_path(str(known[name]), run_name="__main__")


if __name__ == "__main__":
    main()
