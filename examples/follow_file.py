"""Copy the lines of a file that grows into a topic, exactly once, however often this is killed. No Spark:

    python examples/follow_file.py --file /var/log/app.log --root /tmp/commitlog --topic lines --producer-id app-log

The topic remembers how far the producer id has come: a record's sequence is where its line ends in the file. Started
again, the script asks for the last one and goes on after it. Started twice, the older of both is fenced and ends.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyspark_commitlog import CommitLog, Producer
from pyspark_commitlog.errors import CommitLogError, TopicExistsError, WriterFencedError


def main() -> None:
    """Copy what is there; with `--follow` wait for more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, required=True, help="it only ever grows")
    parser.add_argument("--root", required=True, help="root of the commit log")
    parser.add_argument("--topic", default="lines")
    parser.add_argument("--producer-id", required=True, help="always the same for this file and topic")
    parser.add_argument("--follow", action="store_true", help="wait for lines that are still to come")
    args = parser.parse_args()
    with suppress(TopicExistsError):
        CommitLog(args.root).create_topic(args.topic)
    try:
        copy(args.file, args.root, args.topic, args.producer_id, args.follow)
    except WriterFencedError as error:
        sys.exit(f"another one of us has taken over: {error}")


def copy(file: Path, root: str, topic: str, producer_id: str, follow: bool) -> None:
    """Send the lines after the last one that landed."""
    with Producer(root, producer_id=producer_id) as producer:
        failed: list[BaseException] = []
        for line, end in lines(file, producer.last_sequence(topic) + 1, follow):
            future = producer.send(topic, line, sequence=end - 1)
            future.add_done_callback(lambda done: failed.append(error) if (error := done.exception()) else None)
            if failed:
                break
        producer.flush()
    for error in failed:
        raise error if isinstance(error, CommitLogError) else SystemExit(str(error))


def lines(file: Path, start: int, follow: bool) -> Iterator[tuple[bytes, int]]:
    """Yield (line, position after it); a last line without its end waits until it is whole."""
    with file.open("rb") as source:
        source.seek(start)
        while True:
            line = source.readline()
            if line.endswith(b"\n"):
                start += len(line)
                yield line[:-1], start
            elif follow:
                source.seek(start)
                time.sleep(0.1)
            else:
                return


if __name__ == "__main__":
    main()
