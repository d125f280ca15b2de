"""`commitlog`: the command line. This module is light: its needs beyond the core are in the extra `cli`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without the extra, say how to get it."""
    try:
        from pyspark_commitlog.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("The command line needs two more packages: pip install 'pyspark-commitlog[cli]'")
    from pyspark_commitlog.cli.common.streams import wait_for_readers

    wait_for_readers()
    app()
