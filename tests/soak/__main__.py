"""Everything at once, for a long time: `make soak MINUTES=60`. Prints a table; exit code 1 if something grew or was lost.

Producers, consumers without and with a group, members that come and go, a stream of Spark, `commitlog maintain`,
topics that are made and deleted, a root that is put back under a living consumer: each a process of its own
(`roles`). Every 10 seconds memory, threads and descriptors of each are looked at, and journal entries and bytes of
each topic (`sampling`); what they may be at the end of the last two thirds of the run says `judge`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark_commitlog import CommitLog, Consumer
from tests.soak.judge import Cycle, Row, Sample, faults, judged, table, window
from tests.soak.roles import CHURN, COPY, EVENTS, PARTITIONS, TABLE
from tests.soak.sampling import processes, stored

_EVERY_SECONDS = 10.0
_MAINTAIN_SECONDS = 15
_DELAY_MS = 10_000
_PATIENCE_SECONDS = 240
_CONFIG = {
    "segment.bytes": 512 * 1024,
    "file.delete.delay.ms": _DELAY_MS,
    "settle.ms": 10_000,
    "segment.index.bytes": 8192,
}
_TOPICS = {
    EVENTS: (PARTITIONS, {**_CONFIG, "retention.bytes": 4 * 2**20}),
    COPY: (PARTITIONS, {**_CONFIG, "retention.bytes": 4 * 2**20}),
    TABLE: (1, {**_CONFIG, "segment.bytes": 64 * 1024, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.3}),
}
#: From a commit until nothing of it is left but a segment: it is due, settled at the next round, collected after the delay.
_CYCLE_SECONDS = _CONFIG["settle.ms"] / 1000 + _DELAY_MS / 1000 + 2 * _MAINTAIN_SECONDS


class Soak:
    """The processes of one run."""

    def __init__(self, root: Path, out: Path) -> None:
        self._root, self._out = root, out
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.faults: list[str] = []
        self.started = time.monotonic()

    def start(self, name: str, *command: str) -> None:
        """Start a process; what it says goes to a file."""
        with open(self._out / f"{name}.log", "wb") as said:
            self._running[name] = subprocess.Popen([sys.executable, *command], stdout=said, stderr=subprocess.STDOUT)

    def play(self, role: str, name: str | None = None) -> None:
        """Start a role."""
        self.start(name or role, "-m", "tests.soak.roles", role, str(self._root), str(self._out), name or role)

    def stop(self, *names: str) -> dict[str, Any]:
        """End some processes, and return what the first one found."""
        alive = [name for name in names if name in self._running]  # the others ended by themselves: a fault already
        for name in alive:
            self._running[name].send_signal(signal.SIGTERM)
        for name in alive:
            self._end(name)
        found = self._out / f"{names[0]}.json"
        answer: dict[str, Any] = json.loads(found.read_text()) if found.exists() else {}
        return answer

    def _end(self, name: str) -> None:
        process = self._running.pop(name)
        try:
            code: int | None = process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
        if code != 0:
            tail = (self._out / f"{name}.log").read_text(errors="replace")[-2000:]
            self.faults.append(f"{name} ended with {'no answer' if code is None else code}: {tail}")
        found = self._out / f"{name}.json"
        if found.exists():
            self.faults += [f"{name}: {fault}" for fault in json.loads(found.read_text())["faults"]]

    def end_all(self) -> None:
        """End what still runs, at once."""
        for process in self._running.values():
            process.kill()
            process.wait()

    def sample(self) -> Sample:
        """Look at everything; a process that ended by itself is a fault."""
        for name in [name for name, process in self._running.items() if process.poll() is not None]:
            self._end(name)
        names = sorted(path.name for path in (self._root / "topics").iterdir())
        known = {name: stored(self._root, name) for name in names if not name.startswith(CHURN)}
        pids = {name: process.pid for name, process in self._running.items()}
        return Sample(time.monotonic() - self.started, processes(pids), known)


def run(minutes: float, root: Path, out: Path) -> int:
    """Run for so long; return the exit code."""
    log = CommitLog(str(root))
    for name, (partitions, config) in _TOPICS.items():
        log.create_topic(name, partitions, config)
    soak = Soak(root, out)
    samples: list[Sample] = []
    try:
        _start(soak, root, out)
        seconds = minutes * 60
        soak.started = time.monotonic()
        written = {name: _written(root, name) for name in _TOPICS}
        while (now := time.monotonic() - soak.started) < seconds:
            time.sleep(min(_EVERY_SECONDS, seconds - now))
            samples.append(soak.sample())
            with open(out / "samples.jsonl", "a") as file:
                file.write(json.dumps(asdict(samples[-1])) + "\n")
        cycles = {name: _cycle(written[name], _written(root, name), seconds) for name in _TOPICS}
        _end(soak, log, out)
    finally:
        soak.end_all()
    rows = judged(window(samples, seconds), cycles)
    return _tell(minutes, rows, soak.faults)


def _start(soak: Soak, root: Path, out: Path) -> None:
    soak.play("spark")
    until = time.monotonic() + _PATIENCE_SECONDS
    while not (out / "spark.ready").exists() and time.monotonic() < until:
        time.sleep(0.5)
    for role in ("tail", "visitor", "churn", "restore", "producer"):
        soak.play(role)
    for name in ("member-1", "member-2"):
        soak.play("member", name)
    every = ("maintain", str(root), "--every", str(_MAINTAIN_SECONDS))
    soak.start("maintain", "-c", "from pyspark_commitlog.cli import main; main()", *every)


def _end(soak: Soak, log: CommitLog, out: Path) -> None:
    """End the processes, writers first; say what was lost or doubled."""
    sent = soak.stop("producer")
    targets = sent.get("counts", {})
    (out / "targets.json").write_text(json.dumps(targets))
    done = {name: soak.stop(name) for name in ("churn", "restore", "visitor", "spark", "tail")}
    soak.stop("member-1", "member-2")
    soak.stop("maintain")
    counts = {int(partition): count for partition, count in targets.items()}
    for topic, seen in done["tail"].get("seen", {}).items():
        ranges = {int(partition): found for partition, found in seen.items()}
        soak.faults += faults(f"who reads {topic}", ranges, counts)
    together: dict[int, list[list[int]]] = {}
    for line in (out / "group.jsonl").read_text().splitlines():
        for partition, found in json.loads(line).items():
            together.setdefault(int(partition), []).extend(found)
    soak.faults += faults("the group", together, counts)
    soak.faults += _table_faults(log, sent.get("table", {}))
    for name in _TOPICS:
        soak.faults += log.topic(name).verify().faults
    print(f"{sum(counts.values()):,} records; {json.dumps({n: _figures(found) for n, found in done.items()})}")


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _table_faults(log: CommitLog, last: Mapping[str, str]) -> list[str]:
    """Return keys whose newest value is not what was sent last."""
    log.topic(TABLE).maintain()
    with Consumer(log.root.storage.url, TABLE, auto_offset_reset="earliest") as consumer:
        rows = consumer.to_arrow(columns=["key", "value"]).to_pylist()
    found = {row["key"].decode(): row["value"].decode() for row in rows}
    return [f"{TABLE}: {key} is another value than was sent last" for key in last if found.get(key) != last[key]]


def _written(root: Path, topic: str) -> tuple[int, int]:
    """Return entries and bytes of a topic since its beginning: numbers of entries, and of records times their size."""
    handle = CommitLog(str(root)).root.topic(topic)
    stored_entry, state = handle.newest()
    settle_entry, _ = handle.settled(state.topic_id)
    return stored_entry.sequence + settle_entry.sequence, sum(state.log_end)


def _cycle(before: tuple[int, int], after: tuple[int, int], seconds: float) -> Cycle:
    """Return what one cycle writes: entries; bytes, twice a record's largest size, and a segment's worth of each partition."""
    share = _CYCLE_SECONDS / seconds
    segments = PARTITIONS * (_CONFIG["segment.bytes"] + 2 * _CONFIG["segment.index.bytes"])
    return Cycle((after[0] - before[0]) * share, (after[1] - before[1]) * share * 2 * 600 + segments)


def _tell(minutes: float, rows: tuple[list[Row], list[Row]], found: list[str]) -> int:
    print(f"\nA run of {minutes:g} minutes; judged are its last two thirds.\n")
    print("\n".join(table(rows[0])), "\n")
    print("\n".join(table(rows[1])), "\n")
    over = [row.name for each in rows for row in each if not row.held]
    print(f"Over their bounds: {', '.join(over) or 'nothing'}.")
    print("Lost, doubled or wrong: " + ("nothing." if not found else ""))
    for fault in found:
        print(f"- {fault}")
    return 1 if over or found else 0


def main() -> int:
    """Run the soak that the command line asks for."""
    parser = argparse.ArgumentParser(description="Everything at once, for a long time.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--keep", help="where to put the root and what the processes said; it stays there")
    asked = parser.parse_args()
    home = Path(asked.keep or tempfile.mkdtemp(prefix="commitlog-soak-")).absolute()
    out = home / "found"
    out.mkdir(parents=True)
    code = 1
    try:
        code = run(asked.minutes, home / "root", out)
    finally:
        if code == 0 and not asked.keep:
            shutil.rmtree(home)
        else:
            print(f"What was found lies in {home}")
    return code


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Arrow's allocator asks for huge pages: the system then fills 2 MiB around a few bytes, or takes them back, when it
    # likes, and RSS moves by more than the bound, whatever the process does.
    os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")
    # It also keeps freed pages for a while; without that delay RSS is what is in use.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")
    sys.exit(main())
