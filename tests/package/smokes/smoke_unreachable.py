"""A store whose URL and options are given, at which no server listens: the client is there, and says so."""

from __future__ import annotations

import json
import sys

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import StorageError

if __name__ == "__main__":
    try:
        CommitLog(sys.argv[1], json.loads(sys.argv[2]))
    except StorageError as error:
        print("unreachable" if "no answer" in str(error) else error)
