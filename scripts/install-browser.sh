#!/usr/bin/env bash
# install-browser.sh PYTHON: makes sure that the tests find a Chromium. Debian's own where apt can be used as
# root, otherwise Playwright's. Without one the browser tests are skipped, or fail where CI=true.
set -euo pipefail
. "$(dirname "$0")/apt.bash"

python=$1

found() {
    "$python" -m tests.support.browser
}

found && exit 0
echo "memplan: installing a browser for the tests"
apt_install chromium >&2 || echo "memplan: no chromium through apt; trying Playwright's own" >&2
found && exit 0
"$python" -m playwright install chromium >&2 || true
found && exit 0

echo "memplan: no browser could be installed; set MEMPLAN_CHROMIUM to a Chromium or Chrome" >&2
[ "${CI:-}" != true ]
