"""A store whose URL and options are given, at which no server listens: the client is there, and says so."""

from __future__ import annotations

import json
import sys

from pyspark_commitlog.errors import StorageError
from pyspark_commitlog.storage import open_storage

if __name__ == "__main__":
    try:
        open_storage(sys.argv[1], json.loads(sys.argv[2])).names("")
    except StorageError as error:
        print("unreachable" if "no answer" in str(error) else error)
