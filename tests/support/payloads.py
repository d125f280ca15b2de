"""What the frames of a file hold."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from pyspark_commitlog.format import frame


def payloads_of(path: Path) -> list[frame.Payload]:
    data, position, found = pa.py_buffer(path.read_bytes()), 0, list[frame.Payload]()
    while position < data.size and (parsed := frame.parse(data, position)):
        found.append(frame.open_payload(parsed))
        position += parsed.length
    return found
