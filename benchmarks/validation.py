"""What it costs to check JSON that others may have written: json alone, msgspec, pydantic where it is installed.

    python -m benchmarks.validation

A small entry's state (3 partitions), a wide one's (10,000), and a member's file; and the import, each in a process of
its own. CPU time, the least of many runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark_commitlog.format.shape import checked_json
from pyspark_commitlog.groups.state.group_shapes import File
from pyspark_commitlog.groups.state.members import MemberFile, Profile
from pyspark_commitlog.topic.state.shapes import TopicEntry, check_topic_entry
from pyspark_commitlog.topic.state.topic_state import TopicState

_MEMBER = MemberFile(Profile("client", "host/1", ("orders", "flights")), 3).encode()
_BARE = "import sys, json, re, typing, inspect, uuid, decimal, datetime, enum, dataclasses"


def main() -> None:
    """Print a table."""
    for what in ("import msgspec", "from pydantic import BaseModel", "import pyspark_commitlog"):
        print(f"{what}: {_import_ms(what):.1f} ms, beside what is imported anyway")
    for partitions in (3, 10_000):
        data = _entry(partitions)
        _row(f"state of {partitions} partitions, json.loads", lambda data=data: json.loads(data))
        _row("  … msgspec, decoded and checked", lambda data=data: _checked(data))
        _row("  … pydantic, validate_json", _pydantic(data))
    _row("member's file, json.loads", lambda: json.loads(_MEMBER))
    _row("  … msgspec, decoded and checked", lambda: checked_json(_MEMBER, File, "file"))


def _entry(partitions: int) -> bytes:
    ends = tuple(range(10**6, 10**6 + partitions))
    state = TopicState("id", False, {"segment.bytes": "1000000"}, (0,) * partitions, ends, 1)
    return json.dumps({"state": state.to_json()}).encode()


def _checked(data: bytes) -> None:
    check_topic_entry(checked_json(data, TopicEntry, "entry"), "entry")


def _pydantic(data: bytes) -> Callable[[], object] | None:
    try:
        from pydantic import BaseModel, Field
    except ImportError:
        return None
    from typing import Annotated

    offset = Annotated[int, Field(ge=0, le=2**63 - 1)]
    state = type(
        "State", (BaseModel,), {"__annotations__": {"logStart": list[offset], "logEnd": list[offset], "deleted": bool}}
    )
    entry: Any = type("Entry", (BaseModel,), {"__annotations__": {"state": state}})
    return lambda: entry.model_validate_json(data, strict=True)


def _row(what: str, act: Callable[[], object] | None) -> None:
    if act is None:
        print(f"{what}: not installed")
        return
    act()
    times = []
    for _ in range(30):
        start = time.process_time()
        for _ in range(10):
            act()
        times.append((time.process_time() - start) / 10)
    print(f"{what}: {min(times) * 1e6:,.1f} µs")


def _import_ms(what: str) -> float:
    code = f"{_BARE}, time; start = time.process_time(); {what}; print(time.process_time() - start)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False) for _ in range(9)]
    return min(float(run.stdout or "nan") for run in runs) * 1e3


if __name__ == "__main__":
    main()
