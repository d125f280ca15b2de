"""Programs print to descriptors 0 to 2, also where they were closed: no file of a root is at one of those."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark_commitlog import CommitLog
from pyspark_commitlog.topic.damage.verify import verify
from tests.support.records import read_topic

#: Writes and settles; a library that logs prints before each write and sync, and opened files are noted.
PROGRAM = """
import contextlib, os, sys, tempfile
from pyspark_commitlog import CommitLog
from pyspark_commitlog.storage.fsspec.fsspec_files import SpooledOutputFile
from tests.support.records import append, batch_of

os.closerange(0, 3)
tempfile.gettempdir()  # looks for it by a file of its own
low = []

def printing(call):
    def printed(fd, *rest):
        if fd < 3:
            low.append(fd)
        for stream in (0, 1, 2):
            with contextlib.suppress(OSError):
                write(stream, b"INFO a line of the log" + bytes(8))
        return call(fd, *rest)
    return printed

write = os.write
for name in ("write", "pwritev", "fsync", "ftruncate", "fstat", "read"):
    setattr(os, name, printing(getattr(os, name)))
log = CommitLog(sys.argv[1])
log.create_topic("t", 2, {"settle.entries": 1, "inline.max.bytes": 0})
for number in range(10):
    append(log.root.topic("t"), batch_of([b"%d" % number] * 50))
    os.closerange(0, 3)
log.topic("t").maintain()
os.closerange(0, 3)
spooled = SpooledOutputFile(lambda file: low.append(file.fileno()) if file.fileno() < 3 else None)
spooled.write(b"x")
spooled.close()
os._exit(3 if low else 0)
"""


def test_what_is_printed_to_closed_streams_reaches_no_file_of_a_root(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    child = subprocess.run([sys.executable, "-c", PROGRAM, root], check=False)
    topic = CommitLog(root).root.topic("t")

    assert list(verify(topic).faults) == []
    assert sorted(record.value or b"" for record in read_topic(topic)) == sorted(
        b"%d" % n for n in range(10) for _ in range(50)
    )
    assert child.returncode == 0, "a file was opened at a descriptor of the standard streams"
