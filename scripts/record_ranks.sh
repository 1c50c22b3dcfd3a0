#!/usr/bin/env bash
# Records the ranks of Llamas that the pages Devices and Pipeline open: `scripts/record_ranks.sh small` and `served`
# those that lie in example_graphs, `scripts/record_ranks.sh 8b FOLDER` and `70b FOLDER` large ones, which take
# minutes and are not kept: start `memplan dashboard FOLDER` then.
set -euo pipefail
python=${PYTHON:-python}
here=$(cd "$(dirname "$0")/.." && pwd)
script=$here/example_graphs/llama_ranks.py

record() { # name, what `memplan devices` takes
    name=$1
    shift
    folder=$(mktemp -d)
    "$python" -m memplan_engine devices -o "$folder/ranks" --json "$@" > /dev/null
    # Frames name files of this machine: of the checkout and of its packages what is below.
    sed -i -E "s#$here/(\\.venv/lib/[^\"]*site-packages/)?##g; s#/[^\"]*/lib/python3[.0-9]+/##g" "$folder"/ranks/*.json
    "$python" -m memplan_engine.formats.memplan_json.ranks_archive "$folder/ranks" "$here/example_graphs/$name.ranks.zip"
    rm -r "$folder"
}

case ${1:-small} in
small)
    record llama_fsdp_8 "$script" --world 8
    for schedule in GPipe 1F1B Interleaved1F1B InterleavedZeroBubble ZBVZeroBubble DualPipeV; do
        record "llama_$schedule" "$script" --world 2 -- --pp 2 --schedule "$schedule"
    done
    ;;
served)
    record llama_3_8b_served "$here/example_graphs/llama_served.py:llama_3_8b" --context 8192
    ;;
8b)
    "$python" -m memplan_engine devices "$script" --world 8 -o "$2" -- --model 8b --bfloat16 --clip 1 \
        --words 8192 --batch 2 --checkpoint selective
    ;;
70b)
    "$python" -m memplan_engine devices "$script" --world 64 -o "$2" -- --model 70b --bfloat16 --clip 1 \
        --words 8192 --batch 2 --checkpoint full --tp 8
    ;;
*)
    echo "record_ranks.sh: found $1, expected small, served, 8b or 70b" >&2
    exit 2
    ;;
esac
