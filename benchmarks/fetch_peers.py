"""`make bench-peers`: fetches what the benchmarks compare with, once; Maven and pip do it."""

from __future__ import annotations

import sys

from client_peer import REQUIREMENTS
from machine import KAFKA_POM, PEERS_POM

from tests.cluster_bucket.s3a import POM as S3A_POM
from tests.kafka.toolchain import ToolMissingError, clients_python, jars


def main() -> None:
    """Fetch all jars, and the client library into an environment of its own."""
    try:
        for pom in (PEERS_POM, KAFKA_POM, S3A_POM):
            print(f"{pom}: in {jars(pom)}")
        print(f"{REQUIREMENTS}: for {clients_python(REQUIREMENTS)}")
    except ToolMissingError as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
