#!/bin/sh
# Prints a JAVA_HOME that Spark 4 runs on. Where there is none it first installs Java 17 or 21, whichever the system
# offers, if it may: as root, or through sudo that asks for no password. Otherwise one sentence says what to do.
set -u

find_java=${0%/*}/find_java.sh

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

install_with_apt() {
    as_root apt-get update -qq
    for version in 17 21; do
        package=openjdk-$version-jre-headless
        if apt-cache show "$package" >/dev/null 2>&1; then
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$package"
            return
        fi
    done
}

install_with_dnf() {
    for version in 17 21; do
        as_root dnf install -q -y "java-$version-openjdk-headless" && return
    done
}

install_java() {
    as_root true 2>/dev/null || return
    if command -v apt-get >/dev/null; then
        install_with_apt
    elif command -v dnf >/dev/null; then
        install_with_dnf
    fi
}

"$find_java" && exit
install_java >&2
"$find_java" && exit
echo "Spark needs Java 17 or 21, and none is here: install it (Debian and Ubuntu: apt-get install" \
    "openjdk-17-jre-headless, or openjdk-21-jre-headless), or point JAVA_HOME at one." >&2
exit 1
