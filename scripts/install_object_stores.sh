#!/bin/sh
# Installs the object stores that tests start, into tests/object_stores/.servers: versitygw and fake-gcs-server (Go's proxy),
# Azurite (npm); with the argument versitygw that one alone. What is there in the wanted version stays. What can't be
# installed is named, and what to do.
set -u

VERSITYGW=v1.8.0
FAKE_GCS_SERVER=v1.56.1
AZURITE=3.35.0

here=$(cd "$(dirname "$0")/.." && pwd)
servers=${OBJECT_STORES_DIR:-$here/tests/object_stores/.servers}
mkdir -p "$servers/bin"
missing=0

say_missing() {
    echo "$1 is missing: the tests on it can't run. $2" >&2
    missing=1
}

# $1 name, $2 module, $3 version
with_go() {
    [ -x "$servers/bin/$1" ] && [ "$(cat "$servers/bin/.$1" 2>/dev/null)" = "$3" ] && return
    if ! command -v go >/dev/null; then
        say_missing "$1" "It is built with Go, which is not here: install Go 1.25 or newer (https://go.dev/dl)."
        return
    fi
    echo "Building $1 $3: this takes minutes." >&2
    if GOBIN="$servers/bin" go install "$2@$3" >"$servers/$1.output" 2>&1; then
        echo "$3" >"$servers/bin/.$1"
    else
        tail -n 5 "$servers/$1.output" >&2
        say_missing "$1" "'go install $2@$3' failed, as above."
    fi
}

with_npm() {
    [ -x "$servers/node_modules/.bin/azurite-blob" ] && [ "$(cat "$servers/.azurite" 2>/dev/null)" = "$AZURITE" ] && return
    if ! command -v npm >/dev/null; then
        say_missing azurite "It comes by npm, which is not here: install Node.js 20 or newer (Debian and Ubuntu: apt-get install npm)."
        return
    fi
    if npm install --silent --no-audit --no-fund --prefix "$servers" "azurite@$AZURITE" >"$servers/azurite.output" 2>&1; then
        echo "$AZURITE" >"$servers/.azurite"
    else
        tail -n 5 "$servers/azurite.output" >&2
        say_missing azurite "'npm install azurite@$AZURITE' failed, as above."
    fi
}

with_go versitygw github.com/versity/versitygw/cmd/versitygw $VERSITYGW
if [ "${1:-all}" = all ]; then
    with_go fake-gcs-server github.com/fsouza/fake-gcs-server $FAKE_GCS_SERVER
    with_npm
fi
exit $missing
