"""The processes that play the roles."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.nemesis.roles import DATA, Play, play

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.nemesis.roles"])  # a life does not begin with a second of imports
#: Milliseconds by which clocks of processes are wrong.
_SKEWS_MS = (0, 0, -3_000, 3_000)
#: Seconds in which all end that were told to.
PATIENCE_SECONDS = 120
_OPERATOR = "operator"


class Cast:
    """The processes that play the roles; one that is killed is started again."""

    def __init__(self, home: Path, chance: random.Random) -> None:
        self._home, self._chance = home, chance
        self._roles: dict[str, tuple[str, str, str]] = {
            "p1": ("produce", "a", "all"), "p2": ("produce", "b", "all"), "p3": ("produce", "c", "1"),
            "w1": ("transact", "a", "all"), "w2": ("transact", "c", "all"),
            **{f"reader-{root}": ("read", root, "") for root in DATA},
            **{f"keeper-{root}": ("keep", root, "") for root in DATA},
            _OPERATOR: ("operate", "a", ""),
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

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop all for a moment; those that are stopped already stay so."""
        self.look()
        moving = [name for name in self.running if _runs(self._pid(name))]
        for name in moving:
            self.stop(name)
        try:
            for name in moving:
                while _runs(self._pid(name)):
                    time.sleep(0.002)
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
        for process in self.running.values():
            process.kill()
            process.join()


def _runs(pid: int) -> bool:
    """Return whether a process has not stopped, nor ended, yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "TZX"
