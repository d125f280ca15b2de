#!/bin/sh
# Installs the Postgres server where there is none, if it may: as root, or through sudo that asks for no password.
# Otherwise one sentence says what to do. POSTGRES_DIR names another directory to look under.
set -u

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

is_here() {
    command -v pg_ctl >/dev/null && return
    for program in "${POSTGRES_DIR:-/usr/lib/postgresql}"/*/bin/pg_ctl; do
        [ -x "$program" ] && return
    done
    return 1
}

install_postgres() {
    as_root true 2>/dev/null || return
    command -v apt-get >/dev/null || return
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql
}

is_here && exit
install_postgres >&2
is_here && exit
echo "The tests of upserts need the Postgres server, and none is here: install it" \
    "(Debian and Ubuntu: apt-get install postgresql)." >&2
exit 1
