"""Feeds a topic at a steady rate, as a process of its own: `python feed.py ROOT TOPIC RATE SECONDS`.

Commits what has come since its last commit, with the time that each record came at.
"""

from __future__ import annotations

import sys
import time

from history import commit_and_settle

from pyspark_commitlog import CommitLog
from tests.support.records import batch_of

VALUE = b"v" * 200
PAUSE = 0.002


def main() -> None:
    """Feed until the time is over."""
    root, name, rate, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    topic = CommitLog(root).root.topic(name)
    began, sent, total = time.time(), 0, int(rate * seconds)
    while sent < total:
        due = min(total, int((time.time() - began) * rate))
        if due == sent:
            time.sleep(PAUSE)
            continue
        came = [int((began + number / rate) * 1e6) for number in range(sent, due)]
        commit_and_settle(topic, batch_of([VALUE] * len(came), timestamp=came))
        sent = due


if __name__ == "__main__":
    main()
