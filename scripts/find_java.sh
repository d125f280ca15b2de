#!/bin/sh
# Prints a JAVA_HOME that Spark 4 runs on: Java 17 or 21, from $JAVA_HOME, from PATH, or from under /usr/lib/jvm.
# An older or newer Java is passed over. Prints nothing and fails where there is none.
# JVM_DIR names another directory to look under.
set -u

supported() {
    [ -x "$1/bin/java" ] || return 1
    case $("$1/bin/java" -version 2>&1) in
        *' version "17'[!0-9]* | *' version "21'[!0-9]*) return 0 ;;
        *) return 1 ;;
    esac
}

# What PATH calls java is mostly a link into a Java home.
home_on_path() {
    java=$(command -v java) || return 1
    java=$(readlink -f "$java") || return 1
    echo "${java%/bin/java}"
}

for home in "${JAVA_HOME:-}" "$(home_on_path)" "${JVM_DIR:-/usr/lib/jvm}"/*; do
    if [ -n "$home" ] && supported "$home"; then
        echo "$home"
        exit 0
    fi
done
exit 1
