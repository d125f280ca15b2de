"""Clients that read what a broker serves: Kafka's own in Java, and two that share no code with it.

What is read comes back as `Record`s, so that it can be compared with what the files hold.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kafka.frames import Record
from tests.kafka.toolchain import Done, Java, run

_SCRIPT = Path(__file__).with_name("python_client.py")
_END_OF_RECORD = "<<end of record>>"
_PRINTED = ("print.timestamp", "print.offset", "print.headers")
CONSUME_MILLISECONDS = 30_000


class ClientError(Exception):
    """A client failed; the message is what it said."""


@dataclass(frozen=True, slots=True)
class JavaClient:
    """Kafka's console consumer and offset tool."""

    java: Java
    bootstrap: str

    def read(self, topic: str, partition: int, offset: int | str, count: int) -> list[Record]:
        """Return `count` records of a partition from an offset or `earliest`; fewer when no more come."""
        printed = [f"{name}=true" for name in _PRINTED] + [f"line.separator={_END_OF_RECORD}"]
        done = self._run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "--topic", topic, "--partition", str(partition), "--offset", str(offset),
            "--max-messages", str(count), "--timeout-ms", str(CONSUME_MILLISECONDS),
            *(word for each in printed for word in ("--property", each)),
        )  # fmt: skip
        return [_printed_record(line) for line in done.stdout.split(_END_OF_RECORD.encode())[:-1]]

    def offsets(self, topic: str, time: int | str) -> dict[int, int]:
        """Return per partition the offset for a timestamp, or `earliest`, `latest`, `max-timestamp`.

        A partition without an answer is left out.
        """
        done = self._run("org.apache.kafka.tools.GetOffsetShell", "--topic", topic, "--time", str(time))
        answers = [line.split(":") for line in done.stdout.decode().split()]
        return {int(partition): int(offset) for _, partition, offset in answers if offset}

    def _run(self, main: str, *arguments: str) -> Done:
        done = self.java.run(main, "--bootstrap-server", self.bootstrap, *arguments)
        if done.returncode != 0:
            raise ClientError(f"{main} ended with code {done.returncode}: {done.stderr}")
        return done


@dataclass(frozen=True, slots=True)
class PythonClient:
    """A client library for Python, run in its own environment."""

    python: Path
    package: str
    bootstrap: str

    def read(self, topic: str, partitions: Sequence[int]) -> dict[int, list[Record]]:
        """Return all records of each partition, from the earliest."""
        answer = self._ask({"topic": topic, "read": list(partitions)})["read"]
        return {int(partition): [_record(raw) for raw in records] for partition, records in answer.items()}

    def seek(self, topic: str, targets: Sequence[tuple[int, int]]) -> list[Record]:
        """Return for each (partition, offset) the first record that comes after seeking there."""
        return [_record(raw) for raw in self._ask({"topic": topic, "seek": list(targets)})["seek"]]

    def offsets_for_times(self, topic: str, targets: Sequence[tuple[int, int]]) -> list[int | None]:
        """Return for each (partition, timestamp) the offset that the broker answers, or None."""
        answer: list[int | None] = self._ask({"topic": topic, "times": list(targets)})["times"]
        return answer

    def _ask(self, question: Mapping[str, object]) -> dict[str, Any]:
        asked = json.dumps({"library": self.package, "bootstrap": self.bootstrap, **question})
        done = run([str(self.python), "-I", str(_SCRIPT)], stdin=asked.encode())
        if done.returncode != 0:
            raise ClientError(f"{self.package} failed: {done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def _printed_record(line: bytes) -> Record:
    """Parse `CreateTime:<ms> Offset:<offset> <name>:<value>,… <value>`, separated by tabs."""
    timestamp, offset, headers, value = line.split(b"\t", 3)
    pairs = [header.split(":", 1) for header in headers.decode().split(",")]
    named = tuple((name, text) for name, text in pairs)
    return Record(int(offset.partition(b":")[2]), int(timestamp.partition(b":")[2]), value, named)


def _record(raw: Mapping[str, Any]) -> Record:
    headers = tuple((name, text) for name, text in raw["headers"])
    return Record(raw["offset"], raw["timestamp"], base64.b64decode(raw["value"]), headers)
