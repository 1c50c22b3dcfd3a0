#!/usr/bin/env bash
# check-wheel.sh PYTHON [EXTRA …]: builds the source distribution and the wheel into dist/, and the same again from the
# source distribution, in another folder and with other modes: not a byte may differ. Then they are used as a
# stranger would.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
shift
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# build OUT FOLDER. The wheel is made from the sdist, so that nothing left in build/ by an earlier version can slip in.
build() {
    "$python" -m build --no-isolation --outdir "$1" "$2" >"$tmp/build.log" 2>&1 || { cat "$tmp/build.log"; exit 1; }
}

build "$tmp/dist" "$root"
mkdir "$tmp/again"
tar -xzf "$tmp"/dist/*.tar.gz -C "$tmp/again"
chmod -R go= "$tmp/again"
(umask 077 && TZ=Asia/Tokyo build "$tmp/again/dist" "$tmp"/again/memplan-*)
for archive in "$tmp"/dist/*; do
    cmp "$archive" "$tmp/again/dist/$(basename "$archive")"
done
wheel=$(echo "$tmp"/dist/*.whl)
"$python" "$root/scripts/check_wheel_contents.py" "$wheel" "$root"
"$python" "$root/scripts/check_extras.py" "$wheel" "$@"

mkdir -p "$root/dist"
cp "$tmp"/dist/* "$root/dist"
(cd "$root/dist" && sha256sum -- $(ls "$tmp/dist"))
