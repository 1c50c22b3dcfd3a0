#!/usr/bin/env bash
# install-postgresql.sh PYTHON: makes sure that the slow tests find a PostgreSQL server: Debian's own, where apt can
# be used as root. It is not started, the tests start one of their own. Without one those tests are skipped, or fail
# where CI=true.
set -euo pipefail
. "$(dirname "$0")/apt.bash"

python=$1

found() {
    "$python" -m tests.support.postgresql >/dev/null 2>&1
}

debian_postgresql() {
    as_root true 2>/dev/null || return 1
    # No cluster of the system's is wanted: Debian would make one and start it.
    as_root mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo "create_main_cluster = false" | as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
    apt_install postgresql
}

found && exit 0
echo "memplan: installing a PostgreSQL server for the slow tests"
debian_postgresql >&2 || echo "memplan: no PostgreSQL through apt" >&2
found && exit 0

echo "memplan: no PostgreSQL server could be installed: the tests of stores on a server are skipped" >&2
[ "${CI:-}" != true ]
