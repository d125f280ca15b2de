#!/bin/sh
# Installs the browser that tests of the web page drive, if it may (as root, or through sudo that asks for no password;
# apt): Debian's Chromium and its driver. Otherwise one sentence says what to do.
set -u

PACKAGES="chromium chromium-driver"
PROGRAMS="chromium chromedriver"

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
echo "The tests of the web page need $(missing)- install them (Debian: apt-get install $PACKAGES)." >&2
exit 1
