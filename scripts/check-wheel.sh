#!/usr/bin/env bash
# check-wheel.sh PYTHON: builds the wheel and uses it as a stranger would: in a new environment without extras,
# outside the checkout.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# From the sdist, so that nothing left in build/ by an earlier version can slip in.
"$python" -m build --no-isolation --outdir "$tmp/dist" "$root" >"$tmp/build.log" 2>&1 || { cat "$tmp/build.log"; exit 1; }
wheel=$(echo "$tmp"/dist/*.whl)
"$python" "$root/scripts/check_wheel_contents.py" "$wheel" "$root"

"$python" -m venv "$tmp/venv"
"$tmp/venv/bin/python" -m pip install --disable-pip-version-check -q -c "$root/constraints.txt" "$wheel"

mkdir "$tmp/elsewhere"
cd "$tmp/elsewhere"
memplan=$tmp/venv/bin/memplan
printf 'id,lower,upper,size\na,0,2,1024\nb,1,3,512\nc,2,4,1024\n' >three.csv

"$memplan" --help >/dev/null
"$memplan" strategies
"$memplan" plan three.csv
# a and b are live together at step 1, b and c at step 2: 1024 + 512 bytes, and no plan needs less.
"$memplan" plan three.csv --json | "$python" -c '
import json, sys
plan = json.load(sys.stdin)
found = (plan["arena_bytes"], plan["lower_bound_bytes"], plan["optimal"])
sys.exit(None if found == (1536, 1536, True) else f"the installed memplan plans {found}")'
echo "memplan: the wheel $(basename "$wheel") works outside the checkout"
