#!/usr/bin/env bash
# install-browser.sh PYTHON: makes sure that the tests find a Chromium. Debian's own where apt can be used as
# root, otherwise Playwright's. Without one the browser tests are skipped, or fail where CI=true.
set -euo pipefail

python=$1

found() {
    "$python" -m tests.support.browser
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

debian_chromium() {
    command -v apt-get >/dev/null || return 1
    as_root true 2>/dev/null || return 1
    as_root apt-get update -qq || return 1
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium </dev/null
}

found && exit 0
echo "memplan: installing a browser for the tests"
debian_chromium >&2 || echo "memplan: no chromium through apt; trying Playwright's own" >&2
found && exit 0
"$python" -m playwright install chromium >&2 || true
found && exit 0

echo "memplan: no browser could be installed; set MEMPLAN_CHROMIUM to a Chromium or Chrome" >&2
[ "${CI:-}" != true ]
