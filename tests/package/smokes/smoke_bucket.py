"""A topic in a bucket whose URL and options are given, written and read."""

from __future__ import annotations

import json
import sys

from pyspark_commitlog import CommitLog, Producer

if __name__ == "__main__":
    url, options = sys.argv[1], json.loads(sys.argv[2])
    topic = CommitLog(url, options).create_topic("clicks")
    with Producer(url, storage_options=options) as producer:
        producer.send("clicks", b"value").result()
    assert [record.value for record in topic.read(0, 0)] == [b"value"]
    print("bucket")
