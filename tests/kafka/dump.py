"""Kafka's `DumpLogSegments` as a judge: its output is parsed to a verdict, as its exit code says nothing.

The tool looks at every CRC of a `.log` and follows every index entry into it. It reports faults in words,
keeps silent about some, and an exception makes it skip the files that follow; so a verdict is good only when

- every file asked for was looked at, and every entry of every index;
- every batch is valid, the first base offset is the file's name, each next one continues, and the one record
  is at the end;
- nothing was said on stderr but known noise: "Non-consecutive offsets" it says about frames by design.

The tool creates missing index files: run it on copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kafka import frames
from tests.kafka.toolchain import Done, Java

MAIN = "kafka.tools.DumpLogSegments"
_LARGEST_FRAME = 2**31 - 1  # the default, 5 MiB, makes the tool die on larger frames
_BATCH = re.compile(
    r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) .*"
    r"deleteHorizonMs: OptionalLong(\.empty|\[(?P<horizon>\d+)\]) position: (?P<position>\d+) "
    r"\w+: (?P<timestamp>-?\d+) size: (?P<size>\d+) .* crc: (?P<crc>\d+) isvalid: (?P<valid>\w+)"
)
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) \w+: (?P<timestamp>-?\d+) keySize: -1 valueSize: \d+ .*headerKeys: \[.*\]"
)
_ENTRY = re.compile(r"(offset: \d+ position: \d+|timestamp: -?\d+ offset: \d+)")
_QUIET = re.compile(r"Log starting offset: |.* is empty\.$")
_NOISE = re.compile(r"(NOTE: )?Picked up |Non-consecutive offsets in |  -?\d+ is followed by \d+$")


@dataclass(frozen=True, slots=True)
class Batch:
    """What the tool said of a batch."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    delete_horizon: int | None
    crc: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tool said: the faults in words, the batches of each `.log`, and how many index entries it looked at."""

    faults: tuple[str, ...]
    logs: Mapping[Path, Sequence[Batch]]
    entries: int

    @property
    def batches(self) -> int:
        """Return how many batches were looked at."""
        return sum(map(len, self.logs.values()))

    @property
    def good(self) -> bool:
        """Return whether no fault was found."""
        return not self.faults


@dataclass(slots=True)
class _File:
    """What the tool printed about one file."""

    path: Path
    batches: list[re.Match[str]] = field(default_factory=list)
    records: list[re.Match[str]] = field(default_factory=list)
    entries: int = 0
    faults: list[str] = field(default_factory=list)


def dump(java: Java, files: Sequence[Path], *, log_bytes: int | None = None) -> Verdict:
    """Let Kafka's tool look at the files, at no more than `log_bytes` of each `.log`, and return its verdict."""
    arguments = (
        "--deep-iteration",
        "--max-message-size",
        str(_LARGEST_FRAME),
        "--files",
        ",".join(map(str, files)),
        *(() if log_bytes is None else ("--max-bytes", str(log_bytes))),
    )
    return judge(java.run(MAIN, *arguments), files)


def judge(done: Done, files: Sequence[Path]) -> Verdict:
    """Return the verdict that the tool's output amounts to."""
    seen = {file.path: file for file in _parse(done.stdout.decode(errors="replace").splitlines())}
    faults = [f"stderr: {line}" for line in done.stderr.splitlines() if not _NOISE.match(line)]
    if done.returncode != 0:
        faults.append(f"the tool ended with code {done.returncode}")
    faults += [f"{path}: not looked at" for path in files if path not in seen]
    faults += [fault for file in seen.values() for fault in _faults(file)]
    logs = {path: [_batch(each) for each in file.batches] for path, file in seen.items() if path.suffix == ".log"}
    return Verdict(tuple(faults), logs, sum(file.entries for file in seen.values()))


def _parse(lines: Iterable[str]) -> Iterator[_File]:
    file = _File(Path())
    for line in lines:
        if line.startswith("Dumping "):
            file = _File(Path(line.removeprefix("Dumping ")))
            yield file
        elif batch := _BATCH.match(line):
            file.batches.append(batch)
        elif record := _RECORD.match(line):
            file.records.append(record)
        elif _ENTRY.fullmatch(line):
            file.entries += 1
        elif not _QUIET.match(line):
            file.faults.append(line)  # "Found … invalid bytes at the end of …", and whatever is not known


def _batch(found: re.Match[str]) -> Batch:
    names = ("position", "size", "base", "last", "timestamp", "horizon", "crc")
    position, size, base, last, timestamp, horizon, crc = (found[name] for name in names)
    return Batch(int(position), int(size), int(base), int(last), int(timestamp), horizon and int(horizon), int(crc))


def _faults(file: _File) -> Iterator[str]:
    found = _log_faults(file) if file.path.suffix == ".log" else _index_faults(file)
    return (f"{file.path}: {fault}" for fault in (*file.faults, *found))


def _log_faults(file: _File) -> Iterator[str]:
    expected = int(file.path.stem)
    for batch in file.batches:
        if batch["valid"] != "true":
            yield f"the CRC of the batch at position {batch['position']} does not hold"
        if int(batch["base"]) != expected:
            yield f"base offset {batch['base']} at position {batch['position']}, expected {expected}"
        expected = int(batch["last"]) + 1
    ends = [(batch["last"], batch["timestamp"]) for batch in file.batches]
    if ends != [(record["offset"], record["timestamp"]) for record in file.records]:
        yield "not one record at the last offset, with the largest timestamp, in each batch"


def _index_faults(file: _File) -> Iterator[str]:
    step, size = frames.ENTRY_BYTES[file.path.suffix], file.path.stat().st_size
    if size % step:
        yield f"{size} bytes, not a multiple of {step}"
    elif file.entries != (there := len(frames.entries(file.path)) // step):
        yield f"{file.entries} of {there} entries looked at: the next one is zero"
