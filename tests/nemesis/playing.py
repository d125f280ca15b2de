"""Where a role plays, and where it writes down what happens."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from pyspark_commitlog import Producer
from pyspark_commitlog.errors import CommitLogError
from tests.nemesis.history import Acked, Failed, Recorder, path_of
from tests.nemesis.stage import TOPIC, Stage

_DELIVERY_MS = 60_000


@dataclass(frozen=True)
class Play:
    """Where a role plays: the directory of all, its name, its root, its topics; `seed` and `skew_ms` differ from life to life.

    `pause` is by how much longer than in a short run writers and readers wait.
    """

    home: Path
    name: str
    root: str = "a"
    acks: str = "all"
    topics: tuple[str, ...] = (TOPIC,)
    seed: int = 0
    skew_ms: int = 0
    pause: float = 1.0
    recorders: Mapping[str, Recorder] = field(init=False)
    stage: Stage = field(init=False)

    @property
    def topic(self) -> str:
        """Its topic, or the first of them."""
        return self.topics[0]

    @property
    def recorder(self) -> Recorder:
        """Takes down what happens to its topic."""
        return self.recorders[self.topic]

    @property
    def urls(self) -> str:
        """All roots with data, as a client names them; this role's own is the first."""
        return self.stage.urls(self.root)

    def note(self, what: str) -> Path:
        """Return the file of what a role has its next life know."""
        return self.home / "notes" / f"{self.name}.{what}"

    def next_life(self) -> int:
        """Return how often this role was played before; each call is a life."""
        path = self.note("lives")
        with open(path, "ab") as file:
            file.write(b".")
        return path.stat().st_size

    def life(self) -> int:
        """Return how often its root came back with other contents than it had."""
        path = self.home / "lives" / self.root
        return path.stat().st_size if path.exists() else 0

    def begin(self) -> None:
        """Open the files of what happens, and find the roots; only in the process that plays."""
        object.__setattr__(self, "stage", Stage.of(self.home))
        recorders = {topic: Recorder(path_of(self.home, topic, self.name)) for topic in self.topics}
        object.__setattr__(self, "recorders", recorders)

    def ended(self) -> bool:
        """Return whether all is over."""
        return (self.home / "stop").exists()

    def failed(self, what: str, error: BaseException) -> None:
        """Write down what failed."""
        self.recorder.add(Failed(what, f"{type(error).__name__}: {error}"[:500]))


def keep_sending(asked: Play, chance: random.Random, what: str, send: Callable[[Producer], None]) -> None:
    """Send a few records at a time, until all is over; a producer that ends with an error is followed by another."""
    while not asked.ended():
        try:
            options = asked.stage.options
            with Producer(
                asked.urls, storage_options=options, acks=asked.acks, delivery_timeout_ms=_DELIVERY_MS
            ) as producer:
                while not asked.ended():
                    for _ in range(chance.randint(1, 5)):
                        send(producer)
                    time.sleep(chance.uniform(0.02, 0.2) * asked.pause)
        except (CommitLogError, OSError) as error:
            asked.failed(what, error)
            time.sleep(0.2)


def written_down(asked: Play, writer: str, value: str) -> Callable[[Future[object]], None]:
    """Return what writes down that a record is acknowledged, or not."""

    def done(future: Future[object]) -> None:
        error = future.exception()
        if error is not None:
            asked.failed(f"send {value}", error)
            return
        found = future.result()
        asked.recorder.add(Acked(writer, value, asked.acks, found.partition, found.offset))  # type: ignore[attr-defined]

    return done
