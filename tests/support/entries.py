"""Entries of a journal, changed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from awscrt.checksums import crc32c


def rewrite(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Change an entry and make its CRC fit: a wrong entry that passes for a whole one."""
    fields = json.loads(path.read_text())
    del fields["crc"]
    change(fields)
    covered = json.dumps(fields, separators=(",", ":")).encode()[:-1]
    path.write_bytes(covered + b',"crc":"%08x"}\n' % crc32c(covered))
