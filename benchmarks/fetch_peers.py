"""``make bench-peers``: fetches what the benchmarks compare with, once; Maven does it."""

from __future__ import annotations

import sys

from machine import KAFKA_POM, PEERS_POM

from tests.kafka.toolchain import ToolMissingError, jars


def main() -> None:
    """Fetch both sets of jars."""
    for pom in (PEERS_POM, KAFKA_POM):
        try:
            print(f"{pom}: in {jars(pom)}")
        except ToolMissingError as missing:
            sys.exit(str(missing))


if __name__ == "__main__":
    main()
