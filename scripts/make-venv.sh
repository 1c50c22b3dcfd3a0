#!/usr/bin/env bash
# make-venv.sh VENV [PYTHON]: a virtual environment from PYTHON, or from the first Python found that is new enough.
set -euo pipefail

venv=$1
candidates=("${2:-}")
[ -n "${2:-}" ] || candidates=(python3 python3.14 python3.13 python3.12 python3.11 python)

for python in "${candidates[@]}"; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    echo "memplan: making $venv with $("$python" --version)"
    "$python" -m venv "$venv" && exit 0
    # A half-made environment would look finished to the next run.
    rm -rf "$venv"
    echo "memplan: $python cannot make a virtual environment (on Debian and Ubuntu: apt install python3-venv)" >&2
    exit 1
done

echo "memplan: found no Python 3.11 or newer (looked for: ${candidates[*]}); name one with make PYTHON=…" >&2
exit 1
