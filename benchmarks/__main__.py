"""`python -m benchmarks [name …] [options]`: run the benchmarks, each of which prints tables.

Without a name it runs all of them, the shortest way each; `--long` has each take its time. Other options go
to the benchmarks that are named: `python -m benchmarks peers --seconds 60`.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

USUAL = {
    "browser_scale": ["10000", "100000"],
    "greedy_speed": ["--seeds", "1"],
    "guillotine": ["--seeds", "3", "--seconds", "10"],
    "peers": ["--seconds", "2"],
}
"""What a benchmark is given in a run of all, where its own defaults take too long."""
LONG = {"browser_scale": [], "greedy_speed": ["--million"], "instances": ["--long"], "peers": ["--long"]}
"""What it is given instead with --long."""


def commands(arguments: list[str], known: list[str]) -> list[tuple[str, list[str]]]:
    """The benchmarks to run, each with its options; exits when one is not known, or an option has no name."""
    names = _before_options(arguments)
    options = arguments[len(names) :]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
    if names:
        return [(name, options) for name in names]
    if options not in ([], ["--long"]):
        sys.exit(f"{' '.join(options)}: whose option? Name a benchmark: {', '.join(known)}")
    return [(name, (LONG if options else USUAL).get(name, [])) for name in known]


def _before_options(arguments: list[str]) -> list[str]:
    first = next((place for place, text in enumerate(arguments) if text.startswith("-")), len(arguments))
    return arguments[:first]


def main() -> None:
    """Run those that are named, or all of them."""
    paths = {path.stem: path for path in sorted(Path(__file__).parent.glob("[!_]*.py"))}
    for name, options in commands(sys.argv[1:], list(paths)):
        print(f"\n== {' '.join([name, *options])}", flush=True)
        sys.argv = [str(paths[name]), *options]
        runpy.run_path(str(paths[name]), run_name="__main__")


if __name__ == "__main__":
    main()
