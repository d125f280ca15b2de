"""``commitlog``: the command line. This module is light: what it needs beyond the core is in the extra ``cli``."""

from __future__ import annotations

import sys
from io import TextIOWrapper


def main() -> None:
    """Run the command line; without the extra, say how to get it."""
    try:
        from pyspark_commitlog.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("The command line needs two more packages: pip install 'pyspark-commitlog[cli]'")
    # As standard error does: a name that the encoding has no letters for ends nothing. It is None where it is closed.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    app()
