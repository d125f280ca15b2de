"""The processes that play the roles."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from tests.nemesis import spark_writer
from tests.nemesis.playing import Play
from tests.nemesis.roles import play
from tests.nemesis.stage import COMPACTED, DATA, RETAINED, TOPIC, TOPICS
from tests.support.sessions import session_of

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.nemesis.roles"])  # a life does not begin with a second of imports
#: Milliseconds by which clocks of processes are wrong.
_SKEWS_MS = (0, 0, -3_000, 3_000)
#: Seconds in which all end that were told to.
PATIENCE_SECONDS = 240
_OPERATOR = "operator"


class _Part(NamedTuple):
    """A role, at which root it is played, with which acks, and on which topics."""

    role: str
    root: str
    acks: str = "all"
    topics: tuple[str, ...] = (TOPIC,)


class Cast:
    """The processes that play the roles; one that is killed is started again."""

    def __init__(self, home: Path, chance: random.Random, *, queries: int = 0, pause: float = 1.0) -> None:
        self._home, self._chance, self._pause = home, chance, pause
        self._roles: dict[str, _Part] = {
            "p1": _Part("produce", "a"), "p2": _Part("produce", "b"), "p3": _Part("produce", "c", "1"),
            "w1": _Part("transact", "a"), "w2": _Part("transact", "c"),
            **{f"reader-{root}": _Part("read", root) for root in DATA},
            **{f"keeper-{root}": _Part("keep", root, topics=TOPICS) for root in DATA},
            "g1": _Part("consume", "a"), "g2": _Part("consume", "b"),
            "k1": _Part("change", "b", topics=(COMPACTED,)), "k2": _Part("change", "c", topics=(COMPACTED,)),
            "r1": _Part("produce", "c", topics=(RETAINED,)), "trailing": _Part("trail", "a", topics=(RETAINED,)),
            **{f"watcher-{root}": _Part("read", root, topics=(COMPACTED, RETAINED)) for root in DATA},
            _OPERATOR: _Part("operate", "a"),
            **{f"s{number}": _Part("query", root) for number, root in zip(range(1, queries + 1), DATA, strict=False)},
        }  # fmt: skip
        self.running: dict[str, BaseProcess] = {}
        self._began: dict[str, int] = {}  # batches that a query had committed when it was started
        self.wrong: list[str] = []

    def start(self, *names: str) -> None:
        """Start roles; all by default."""
        for name in names or self._roles:
            part = self._roles[name]
            seed, skew_ms = self._chance.randrange(2**32), self._chance.choice(_SKEWS_MS)
            asked = Play(self._home, name, part.root, part.acks, part.topics, seed, skew_ms, self._pause)
            process = _CONTEXT.Process(target=play, args=(part.role, asked))
            process.start()
            self.running[name], self._began[name] = process, self._committed(name)

    def anyone(self) -> str:
        """Return one of the roles; a query only once it has committed something: before that it has hardly begun."""
        able = [name for name in self._roles if not self._is_query(name) or self._committed(name) > self._began[name]]
        return self._chance.choice(able)

    def _committed(self, name: str) -> int:
        return spark_writer.committed(self._home, name).committed

    def _is_query(self, name: str) -> bool:
        return self._roles[name].role == "query"

    def kill(self, name: str) -> None:
        """Kill one, and start it again."""
        self.look()
        self._kill(name)
        self.start(name)

    def _kill(self, name: str) -> None:
        self._signal(name, signal.SIGKILL)
        self.running[name].join()

    def stop(self, name: str) -> None:
        """Stop one where it stands."""
        self._signal(name, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """Let one go on that was stopped, unless it was killed meanwhile."""
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, signal_: signal.Signals) -> None:
        """Send a signal to a role's process; to all of a query's, which it has started meanwhile, too."""
        sent = set[int]()
        while left := self._pids(name) - sent:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal_)
            sent |= left

    def _pids(self, name: str) -> set[int]:
        pid = self._pid(name)
        return {pid, *session_of(pid)} if self._is_query(name) else {pid}

    def _moves(self, name: str) -> bool:
        return any(_runs(pid) for pid in self._pids(name))

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop all for a moment; those that are stopped already stay so."""
        self.look()
        moving = [name for name in self.running if self._moves(name)]
        for name in moving:
            self.stop(name)
        try:
            for name in moving:
                while self._moves(name):
                    time.sleep(0.002)
                    self.stop(name)  # it had a child made while it was stopped
            yield
        finally:
            for name in moving:
                self.go_on(name)

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
        until = time.monotonic() + PATIENCE_SECONDS
        for name, process in self.running.items():
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode != 0:
                self.wrong.append(f"{name} ended with {process.exitcode}")

    def kill_all(self) -> None:
        """End what still runs, at once."""
        for name in self.running:
            self._kill(name)


def _runs(pid: int) -> bool:
    """Return whether a process has not stopped, nor ended, yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "TZX"
