#!/usr/bin/env bash
# install-compilers.sh: makes sure that the tests find gcc, g++ and clang, which compile the headers that memplan
# writes. What is missing comes from Debian, where apt can be used as root; without it those tests are skipped, or
# fail where CI=true.
set -euo pipefail
. "$(dirname "$0")/apt.bash"

found() {
    command -v gcc >/dev/null && command -v g++ >/dev/null && command -v clang >/dev/null
}

found && exit 0
echo "memplan: installing compilers for the tests"
apt_install gcc g++ libc6-dev clang >&2 || echo "memplan: no compilers through apt" >&2
found && exit 0

echo "memplan: not all of gcc, g++ and clang could be installed: the tests of C headers are skipped" >&2
[ "${CI:-}" != true ]
