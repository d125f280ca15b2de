"""What fails, when, and until when: by chance of a seed.

Before a disk loses, or damages, what it held, another root is looked for that is in sync and whole, the *warden*: its
disk is left in peace until all is mended. What nobody could keep is not promised: a record that acks=1 left on one root
alone, or the log when the last root in sync forgets.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.format.paths import ROOT_MARKER
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.roots import root_id
from tests.nemesis.bucket import Bucket
from tests.nemesis.cast import Cast
from tests.nemesis.disks import Disk
from tests.nemesis.gateway import Gateway
from tests.nemesis.operating import EMPTY, REPAIR, REPLACE, Requests
from tests.nemesis.stage import DATA, METADATA, TOPICS, Stage

#: Seconds that a fault lasts, that a disk is away for long, and between two faults.
_LASTS, _LONG, _BETWEEN = (0.5, 6.0), (8.0, 25.0), (0.2, 2.0)
#: How often a disk that goes is away for long.
_OFTEN_LONG = 0.3
_KINDS = {
    "kill": 3, "stop": 2, "away": 2, "full": 1, "read only": 1, "slow": 1, "hang": 1,
    "old": 3, "emptied": 1, "flipped": 3, "spoiled": 1,
}  # fmt: skip
#: Files of a root that others have, too: entries, and what they name, chunks, tables and segments.
_SHARED = ("topics/{}/journal/*", "topics/{}/*/staged/*.chunk", "topics/{}/*/*/*.log", "topics/{}/*/objects/*.segment")
#: A root has so many entries of each topic before bits are flipped: what stands beside a damaged one proves which is the right one.
_LEAST_ENTRIES = 20
#: How often a disk is copied.
_OFTEN_COPIED = 0.15
#: Seconds in which what was asked of the operator is done, once nothing fails.
_PATIENCE_SECONDS = 600
Place = Disk | Bucket | Gateway


@dataclass(frozen=True, slots=True)
class _Pending:
    """What is mended later: when, on which disk (or which role is stopped), and how."""

    at: float
    what: str
    whose: str
    mend: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Watched:
    """A disk that lost something when these were the newest entries of the topics, and its warden."""

    name: str
    warden: str
    at: Mapping[str, int]


class Nemesis:
    """Lets things fail, one after the other and some at once; each is mended after a while."""

    def __init__(
        self, stage: Stage, cast: Cast, disks: dict[str, Place], chance: random.Random, pause: float = 1.0
    ) -> None:
        self._pause = pause
        self._stage, self._cast, self._disks, self._chance = stage, cast, disks, chance
        self._requests = Requests(stage)
        self._pending: list[_Pending] = []
        self._watched: _Watched | None = None
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, seconds: float) -> None:
        """Go on for so long, then mend everything."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(self._chance.uniform(*_BETWEEN) * self._pause)
            self._mend()
            self._empty()
            self._cast.look()
            if self._chance.random() < _OFTEN_COPIED:
                self._copy()
            self._strike()
        self._mend(everything=True)
        until = time.monotonic() + _PATIENCE_SECONDS
        while self._requests.waiting() and time.monotonic() < until:
            time.sleep(0.2)
            self._empty()
        self.wrong += [f"the operator can't {request}" for request in self._requests.waiting()]

    def _strike(self) -> None:
        what = self._chance.choices(list(_KINDS), list(_KINDS.values()))[0]
        name = ""
        if what == "kill":
            names = {self._cast.anyone() for _ in range(self._chance.choice((1, 1, 1, 6)))}
            for name in names:
                self._cast.kill(name)
            name = ",".join(sorted(names))
        elif what == "stop":
            name = self._cast.anyone()
            self._cast.stop(name)
            self._later(what, name, lambda: self._cast.go_on(name))
        elif what in ("old", "emptied", "flipped"):
            name = self._lose(what)
        else:
            name = self._free(what)
            if what == "away" and f"{REPLACE}-{name}" in self._requests.waiting():
                return  # a place that is empty for another reason is not to be filled
            if name and not self._break(what, self._disks[name]):
                what = f"{what} (in use)"
        if name:
            self.said(f"{what} {name}")
            self.done[what] += 1

    @staticmethod
    def said(what: str) -> None:
        """Print what is done."""
        print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)

    def _free(self, fault: str) -> str:
        """Return a disk, or bucket, of which nothing is wrong and that may have a fault, by chance; or none."""
        struck = {each.whose for each in self._pending}
        able = [name for name, disk in self._disks.items() if fault in disk.faults]
        free = [name for name in able if name not in struck and name != self._warden()]
        name = self._chance.choice([*free, ""])
        # without one that decides everything waits, or depends on two
        return "" if name in METADATA and self._chance.random() < 0.5 else name

    def _break(self, what: str, disk: Place) -> bool:
        if not disk.begin(what):
            return False
        lasts = _LONG if what == "away" and self._chance.random() < _OFTEN_LONG else _LASTS
        self._later(what, disk.name, lambda: disk.end(what), lasts)
        return True

    def _later(self, what: str, whose: str, mend: Callable[[], None], lasts: tuple[float, float] = _LASTS) -> None:
        self._pending.append(_Pending(time.monotonic() + self._chance.uniform(*lasts), what, whose, mend))

    def _mend(self, *, everything: bool = False) -> None:
        for each in [each for each in self._pending if everything or each.at <= time.monotonic()]:
            each.mend()
            self._pending.remove(each)

    # --- what a disk held ----------------------------------------------------------------------------

    def _lose(self, what: str) -> str:
        """Have a disk lose or damage what it held, where another root keeps it; return which, or nothing."""
        name = self._chance.choice((*DATA, METADATA[0]) if what == "flipped" else DATA)
        if self._warden() or not self._at_peace(name) or min(self._newest(name).values()) < _LEAST_ENTRIES:
            return ""
        with self._cast.standing_still():
            wardens = [root for root in self._in_sync() if root != name and self._at_peace(root)]
            if what == "flipped":
                wardens = [root for root in wardens if self._reaches(root, self._newest(name))]
            if not wardens or not self._lost(what, self._disks[name]):
                return ""
        at = {topic: max(disk.newest(topic) for disk in self._disks.values()) for topic in TOPICS}
        self._watched = _Watched(name, self._chance.choice(wardens), at)
        return name

    def _newest(self, name: str) -> dict[str, int]:
        return {topic: self._disks[name].newest(topic) for topic in TOPICS}

    def _reaches(self, name: str, entries: Mapping[str, int]) -> bool:
        """Return whether a root has these entries, or newer ones, of all topics."""
        return all(self._disks[name].newest(topic) >= number for topic, number in entries.items())

    def _in_sync(self) -> list[str]:
        """Return the roots that are in sync in all topics; none while the disk that decides is away."""
        names = list(DATA)
        try:
            for topic in TOPICS:
                decided_log = self._stage.topic(METADATA[0], topic).journal.decided_log()
                state, listed = state_of(decided_log.places.newest().entry), decided_log.places.roots.listed()
                in_sync = {Path(address.url).name for address in listed.data if address.id in state.isr}
                names = [name for name in names if name in in_sync]
        except (CommitLogError, OSError):
            return []
        return names

    def _at_peace(self, root: str) -> bool:
        return all(each.whose != root for each in self._pending)

    def _lost(self, what: str, disk: Place) -> bool:
        if what == "flipped":
            topic = self._chance.choice(TOPICS)
            shared = (pattern.format(topic) for pattern in _SHARED)
            files = disk.files(*shared)  # of a root that decides the entries alone
            if not files:
                return False
            file = self._chance.choice(files)
            disk.flip(file, self._chance)
            self.said(f"a bit of {disk.name}/{file}")
            self._requests.add(REPAIR, disk.name)
            return True
        try:
            gone = root_id(self._stage.storage(disk.name))
        except FileNotFoundError:  # it is empty, but for what was put there since
            gone = self._requests.gone(disk.name)
        disk.take_away()
        with open(self._stage.home / "lives" / disk.name, "ab") as lives:
            lives.write(b".")
        lost = disk.clear() if what == "emptied" else disk.set_back()
        disk.give_back()
        if lost:  # of what is set back some may have been written on what was there
            self._requests.add(*((REPLACE, disk.name, gone) if what == "emptied" else (REPAIR, disk.name)))
        return lost

    def _empty(self) -> None:
        """Give an empty disk for one that can't be repaired, as the operator asks."""
        for request in self._requests.waiting():
            what, _, name = request.partition("-")
            if what == EMPTY and self._at_peace(name):
                self.said(f"{name} can't be repaired")
                self._lost("emptied", self._disks[name])
                self._requests.done(request)

    def _warden(self) -> str:
        """Return the root that is left in peace while another one lacks what it had; or none."""
        if self._watched is None:
            return ""
        name = self._watched.name
        back = name in (*self._in_sync(), METADATA[0]) and self._reaches(name, self._watched.at)
        if back and not self._requests.waiting():
            self._watched = None
            return ""
        return self._watched.warden

    def _copy(self) -> None:
        """Copy a disk while nothing changes, for the day that it comes back as of now; not one that was emptied."""
        disk = self._disks[self._chance.choice(DATA)]
        with self._cast.standing_still():
            if disk.files(ROOT_MARKER):
                disk.copy()
