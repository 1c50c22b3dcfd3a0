#!/usr/bin/env bash
# surroundings.sh [NAME…]: run `make test` once in each of these surroundings, or in those named:
#   signals   SIGINT, SIGTERM and SIGHUP ignored
#   umask     umask 077
#   terminal  TERM=dumb
#   locale    LC_ALL=C
#   stdin     standard input closed
#   home      another HOME, empty
#   files     at most 256 open files a process (ulimit -n)
#   user      a user other than root: in a user namespace where root starts this, which keeps access to the files
set -euo pipefail

cd "$(dirname "$0")/.."
all=(signals umask terminal locale stdin home files user)
[ $# -gt 0 ] || set -- "${all[@]}"
for name in "$@"; do
    [[ " ${all[*]} " == *" $name "* ]] || { sed -n '2,10s/^# //p' "$0" >&2; exit 2; }
done
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT

run_in() {
    case $1 in
        signals) trap '' INT TERM HUP; make test ;;
        umask) umask 077; make test ;;
        terminal) TERM=dumb make test ;;
        locale) LC_ALL=C make test ;;
        stdin) make test <&- ;;
        home) mkdir "$box/home"; HOME="$box/home" make test ;;
        files) ulimit -n 256; make test ;;
        user) if [ "$(id -u)" = 0 ]; then unshare --user --map-user 1000 --map-group 1000 make test; else make test; fi ;;
    esac
}

bad=0
for name in "$@"; do
    code=0
    (set -e; run_in "$name") >"$box/log" 2>&1 || code=$?
    printf '%-10s exit %s: %s\n' "$name" "$code" "$(grep -aE '^[0-9]+ (passed|failed)|^=+ .*(passed|failed)' "$box/log" | tail -n 1)"
    [ $code = 0 ] || { bad=1; grep -aE '^(FAILED|ERROR) ' "$box/log" || tail -n 20 "$box/log"; }
done
exit $bad
