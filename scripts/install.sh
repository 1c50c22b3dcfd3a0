#!/usr/bin/env bash
# install.sh PYTHON EXTRA[,EXTRA…]: install memplan with these extras, everything pinned, into PYTHON's environment.
# The kernels compile meanwhile, in two processes: they need only what memplan needs without extras. For "test" a
# browser is installed as well. For "docs" nothing is compiled: the documentation is read from the sources.
set -euo pipefail

python=$1
extras=$2
pins=$(dirname "$python")/../pins.txt
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# What pip leaves uncompiled, Python compiles when it first imports it, which is a small part of all modules. Not
# where the environment tells Python to keep nothing, and not for people, whose first start should be quick.
lazily=()
if [[ ,$extras, =~ ,(test|docs), ]] && [ -z "${PYTHONDONTWRITEBYTECODE:-}" ]; then lazily=(--no-compile); fi

# Only files with a hash in the lock, setuptools for the build among them.
install() {
    "$python" scripts/lock.py "$@" >"$pins"
    "$python" -m pip install --disable-pip-version-check -q --no-deps "${lazily[@]}" --require-hashes -r "$pins"
}

# compile MODULE FUNCTION…
compile() {
    "$python" -c "
import importlib, sys
for name in sys.argv[2:]:
    getattr(importlib.import_module(sys.argv[1]), name)()" "$@"
}

install
background=()
if [ "$extras" != docs ]; then
    echo "memplan: compiling the kernels, once"
    compile memplan_engine.warm_up compile_packing & background+=($!)
    if [[ ,$extras, == *,test,* ]]; then
        # The wait for packages from elsewhere costs no processor time; what fails here is tried again, aloud, by `make browser`.
        (scripts/install-browser.sh "$python" >"$logs/browser" 2>&1 || true) & background+=($!)
        (compile memplan_engine.warm_up compile_others && compile tests.support.compile_replays compile_replays) & background+=($!)
    else
        compile memplan_engine.warm_up compile_others & background+=($!)
    fi
fi
IFS=, read -ra names <<<"$extras"
install "${names[@]}"
"$python" -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
# Some builds need packages that the lock does not know, such as the CUDA libraries of a torch for GPUs.
"$python" -m pip check >/dev/null || {
    echo "memplan: installing what these packages need in addition"
    "$python" -m pip install --disable-pip-version-check -q -c constraints.txt --no-build-isolation -e ".[$extras]"
}
for job in "${background[@]}"; do wait "$job"; done
