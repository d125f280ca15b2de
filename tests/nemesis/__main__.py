"""Everything fails at once: ``make test-nemesis MINUTES=30``. Exit code 1 if a promise was broken.

A topic lives on three disks, file systems of their own, and a fourth decides. Producers (acks all and 1) and a writer of
numbered batches write; readers follow each root; each root is maintained and replicated by a process of its own, and
leaders are elected for no reason. Meanwhile, by chance of a seed: processes are killed and stopped, disks are taken away
and given back, filled, made read-only and slow; clocks of processes are apart. In the end everything is mended, and
what was acknowledged and seen is compared with what each root has (``checker``).
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from pyspark_commitlog import CommitLog
from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage import open_storage
from tests.nemesis.checker import faults
from tests.nemesis.disks import Disk, enter_namespace
from tests.nemesis.history import Acked, Event, Failed, Read, Shown, recorded
from tests.nemesis.roles import DATA, METADATA, TOPIC, Play, play, read_at

_CONTEXT = multiprocessing.get_context("forkserver")
_PARTITIONS = 2
_CONFIG = {
    "replica.lag.time.max.ms": 2_000,
    "min.insync.replicas": 2,
    "segment.bytes": 256 * 1024,
    "settle.ms": 2_000,
    # Longer than a root is away: one that lacks what is collected can't catch up yet.
    "file.delete.delay.ms": 60_000,
}
#: Milliseconds by which clocks of processes are wrong.
_SKEWS_MS = (0, 0, -3_000, 3_000)
#: Seconds that a fault lasts, and between two faults.
_LASTS, _BETWEEN = (0.5, 6.0), (0.2, 2.0)
_PATIENCE_SECONDS = 120


class Cast:
    """The processes that play the roles; one that is killed is started again."""

    def __init__(self, home: Path, chance: random.Random) -> None:
        self._home, self._chance = home, chance
        self._roles: dict[str, tuple[str, str, str]] = {
            "p1": ("produce", "a", "all"), "p2": ("produce", "b", "all"), "p3": ("produce", "c", "1"),
            "w1": ("transact", "a", "all"), "w2": ("transact", "c", "all"),
            **{f"reader-{root}": ("read", root, "") for root in DATA},
            **{f"keeper-{root}": ("keep", root, "") for root in DATA},
        }  # fmt: skip
        self.running: dict[str, BaseProcess] = {}
        self.wrong: list[str] = []

    def start(self, *names: str) -> None:
        """Start roles; all by default."""
        for name in names or self._roles:
            role, root, acks = self._roles[name]
            asked = Play(self._home, name, root, acks, self._chance.randrange(2**32), self._chance.choice(_SKEWS_MS))
            process = _CONTEXT.Process(target=play, args=(role, asked))
            process.start()
            self.running[name] = process

    def anyone(self) -> str:
        """Return one of the roles."""
        return self._chance.choice(list(self._roles))

    def kill(self, name: str) -> None:
        """Kill one, and start it again."""
        self.look()
        self.running[name].kill()
        self.running[name].join()
        self.start(name)

    def stop(self, name: str) -> None:
        """Stop one where it stands."""
        os.kill(self._pid(name), signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """Let one go on that was stopped, unless it was killed meanwhile."""
        os.kill(self._pid(name), signal.SIGCONT)

    def _pid(self, name: str) -> int:
        pid = self.running[name].pid
        assert pid is not None
        return pid

    def look(self) -> None:
        """Note a process that ended by itself, and start it again."""
        for name, process in list(self.running.items()):
            if not process.is_alive():
                self.wrong.append(f"{name} ended by itself, with {process.exitcode}")
                self.start(name)

    def end(self) -> None:
        """Have all end; what was sent is delivered first."""
        self.look()
        (self._home / "stop").touch()
        until = time.monotonic() + _PATIENCE_SECONDS
        for name, process in self.running.items():
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode != 0:
                self.wrong.append(f"{name} ended with {process.exitcode}")

    def kill_all(self) -> None:
        """End what still runs, at once."""
        for process in self.running.values():
            process.kill()
            process.join()


class Nemesis:
    """Lets things fail, one after the other and some at once; each is mended after a while."""

    def __init__(self, home: Path, cast: Cast, disks: dict[str, Disk], chance: random.Random) -> None:
        self._home, self._cast, self._disks, self._chance = home, cast, disks, chance
        self._mends: list[tuple[float, str, Callable[[], None]]] = []
        self.done: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Go on for so long, then mend everything."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(self._chance.uniform(*_BETWEEN))
            self._mend()
            self._cast.look()
            self._strike()
        self._mend(everything=True)

    def _strike(self) -> None:
        what = self._chance.choice(
            ("kill", "kill", "kill", "stop", "stop", "away", "away", "full", "read only", "slow")
        )
        if what == "kill":
            for name in {self._cast.anyone() for _ in range(self._chance.choice((1, 1, 1, 6)))}:
                self._cast.kill(name)
        elif what == "stop":
            name = self._cast.anyone()
            self._cast.stop(name)
            self._later(f"stop {name}", lambda: self._cast.go_on(name))
        else:
            free = [name for name in self._disks if all(not told.endswith(f" {name}") for _, told, _ in self._mends)]
            name = self._chance.choice([*free, ""])
            if name == "" or (name == METADATA and self._chance.random() < 0.5):  # without it everything waits
                return
            if not self._break(what, self._disks[name]):
                what = f"{what} (in use)"
        print(f"{time.strftime('%H:%M:%S')} {what} {name}", flush=True)
        self.done[what] += 1

    def _break(self, what: str, disk: Disk) -> bool:
        if what == "away":
            disk.take_away()
            mend = disk.give_back
        elif what == "full":
            disk.fill()
            mend = disk.empty
        elif what == "read only":
            if not disk.make_read_only():
                return False
            mend = disk.make_writable
        else:
            slow = self._home / f"slow-{disk.name}"
            slow.touch()
            mend = slow.unlink
        self._later(f"{what} {disk.name}", mend)
        return True

    def _later(self, told: str, mend: Callable[[], None]) -> None:
        self._mends.append((time.monotonic() + self._chance.uniform(*_LASTS), told, mend))

    def _mend(self, *, everything: bool = False) -> None:
        due = [each for each in self._mends if everything or each[0] <= time.monotonic()]
        for each in due:
            each[2]()
            self._mends.remove(each)


def settle_down(home: Path) -> tuple[dict[str, list[Read]], list[str]]:
    """Have all roots learn all, and be maintained; return what each one has, and what is wrong."""
    wrong = list[str]()
    log, until, failed = CommitLog(str(home / "a")), time.monotonic() + _PATIENCE_SECONDS, ""
    while time.monotonic() < until:
        try:
            done = log.replicate(TOPIC)
            failed = "" if len(done.isr) == len(DATA) and not done.failed else str(done)
        except (CommitLogError, OSError) as error:
            failed = f"{type(error).__name__}: {error}"
        if not failed and not done.hw_raised:
            break
        time.sleep(0.2)
    if failed:
        wrong.append(f"the replicas do not converge: {failed}")
    final: dict[str, list[Read]] = {}
    for root in DATA:
        here = CommitLog(str(home / root))
        here.maintain(TOPIC)
        wrong += [f"{root}: {fault}" for fault in here.verify(TOPIC).faults]
    for root in DATA:
        topic = TopicLog(open_storage(str(home / root)), TOPIC)
        _, state = topic.newest()
        final[root] = [read_at(root, topic, partition, 0, end) for partition, end in enumerate(state.log_end)]
    return final, wrong


def run(seconds: float, seed: int, home: Path) -> list[str]:
    """Run for so long; return what was wrong."""
    chance = random.Random(seed)
    for name in ("histories", "said"):
        (home / name).mkdir(parents=True)
    disks = {name: Disk(home, name) for name in (*DATA, METADATA)}
    roots = [str(disks[name].place) for name in DATA]
    CommitLog.create_root(roots, [str(disks[METADATA].place)]).create_topic(TOPIC, _PARTITIONS, _CONFIG)
    cast = Cast(home, chance)
    nemesis = Nemesis(home, cast, disks, chance)
    try:
        cast.start()
        nemesis.run(seconds)
        cast.end()
    finally:
        cast.kill_all()
    final, wrong = settle_down(home)
    histories = [list(recorded(path)) for path in sorted((home / "histories").iterdir()) if not path.suffix]
    wrong = [*cast.wrong, *wrong, *faults(histories, final)]
    wrong += [f"written below {name} while it was away: {', '.join(found[:5])}"
              for name, disk in disks.items() if (found := disk.strays())]  # fmt: skip
    _tell(seed, nemesis.done, histories, wrong)
    if wrong:
        for name, disk in disks.items():
            disk.save(home / "kept" / name)
    return wrong


def _tell(seed: int, done: Counter[str], histories: list[list[Event]], wrong: list[str]) -> None:
    events = [event for history in histories for event in history]
    counts = {kind.__name__: sum(isinstance(event, kind) for event in events) for kind in (Acked, Shown, Read, Failed)}
    print(f"\nseed {seed}: {dict(done)}; {counts}")
    failed = Counter(event.error.partition(":")[0] for event in events if isinstance(event, Failed))
    print(f"what failed, and was tried again: {dict(failed)}")
    print(f"Broken promises: {len(wrong) or 'none'}")
    for fault in wrong[:40]:
        print(f"- {fault[:600]}")


def main() -> int:
    """Run the nemesis that the command line asks for."""
    enter_namespace("tests.nemesis", sys.argv[1:])
    parser = argparse.ArgumentParser(description="Everything fails at once.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--keep", help="where to put histories, and the roots where a promise was broken")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    home = Path(asked.keep or tempfile.mkdtemp(prefix="nemesis-")).absolute()
    wrong = run(asked.minutes * 60, asked.seed, home)
    if not wrong and not asked.keep:
        shutil.rmtree(home, ignore_errors=True)  # mounts stay until the namespace goes
    elif wrong:
        print(f"What was found lies in {home}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
