#!/bin/sh
# Installs what tests need from Debian or Ubuntu, if it may (as root, or through sudo that asks for no password; apt).
# Otherwise one sentence says what to do. Usage:
#   scripts/install_packages.sh "The tests of the web page" "chromium chromedriver" "chromium chromium-driver"
# takes which tests they are, the programs that they run, and the packages that have these.
set -u

WHAT=$1
PROGRAMS=$2
PACKAGES=$3
PATH="$PATH:/usr/sbin:/sbin"

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

missing() {
    for program in $PROGRAMS; do
        command -v "$program" >/dev/null || printf '%s ' "$program"
    done
}

install() {
    as_root true 2>/dev/null || return
    command -v apt-get >/dev/null || return
    as_root apt-get update -qq
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $PACKAGES
}

[ -z "$(missing)" ] && exit
install >&2
[ -z "$(missing)" ] && exit
echo "$WHAT need $(missing)- install them (Debian: apt-get install $PACKAGES)." >&2
exit 1
