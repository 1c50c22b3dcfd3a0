# apt.bash: for scripts that install what the tests need from Debian, where apt can be used as root. To be sourced.

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# apt_install PACKAGE…: 1 where that cannot be done.
apt_install() {
    command -v apt-get >/dev/null || return 1
    as_root true 2>/dev/null || return 1
    as_root apt-get update -qq || return 1
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null
}
