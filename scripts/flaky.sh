#!/usr/bin/env bash
# flaky.sh N [--load K]: run `make test` and the slice of the slow tests N times, each time with the files in another
# order and with 1, 2 or 4 workers, with K busy processes running as well. List every test that failed, and every
# test that did not give the same answer each time; exit 1 where there is one.
set -euo pipefail

usage() { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
load=0 runs=
while [ $# -gt 0 ]; do
    case $1 in
        --load) load=${2:-}; shift ;;
        *) runs=$1 ;;
    esac
    shift
done
[[ $runs =~ ^[1-9][0-9]*$ && $load =~ ^[0-9]+$ ]] || usage
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$out"' EXIT
for _ in $(seq "$load"); do (while :; do :; done) & done

workers=(1 2 4)
for run in $(seq "$runs"); do
    n=${workers[$(((run - 1) % 3))]}
    for target in test test-slice; do
        began=$(date +%s)
        code=0
        make "$target" ARGS="-n $n --no-loadscope-reorder --shuffle-files $run -rpfEsxX --no-fold-skipped" \
            >"$out/log" 2>&1 </dev/null || code=$?
        # A line for each test: its outcome and its id, without the message.
        grep -aE '^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) ' "$out/log" | sed 's/ - .*//' | sort -u >>"$out/answers"
        echo "run $run of $runs, $n workers: make $target ended with $code after $(($(date +%s) - began)) s"
        if [ $code != 0 ]; then
            grep -aE '^(FAILED|ERROR) ' "$out/log" || tail -n 20 "$out/log"
            echo "$code make $target, run $run" >>"$out/ended"
        fi
    done
done

# The same answer in each run, or the test is flaky.
sort "$out/answers" | uniq -c | awk -v runs="$runs" '
    { count = $1; sub(/^ *[0-9]+ /, ""); id = $0; sub(/^[A-Z]+ /, "", id) }
    count != runs { flaky[id] = flaky[id] "\n    " count " of " runs ": " $0 }
    /^(FAILED|ERROR) / && count == runs { print "failed each time: " id; failed++ }
    END {
        for (id in flaky) { print "flaky: " id flaky[id]; unstable++ }
        print (unstable + 0) " flaky, " (failed + 0) " failed each time, in " runs " runs"
        exit (unstable + failed > 0)
    }' || bad=1
[ ! -e "$out/ended" ] && [ -z "${bad:-}" ]
