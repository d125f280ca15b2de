"""Where callers of this process stand in line for the turn of a directory: no system call, so on every system."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Condition


@dataclass(eq=False, slots=True)
class TurnPlace:
    """A caller's place among those of this process that want the turn of a directory; ``fd`` holds the turn."""

    directory: str
    fd: int | None = None


class TurnQueues:
    """Queues of waiting callers, per directory: the first alone goes on."""

    def __init__(self) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        """Forget all that wait: a forked child has none of them, and nobody lets go of a lock that one of them held."""
        self._queues: dict[str, list[TurnPlace]] = {}
        self._changed = Condition()

    def enter(self, place: TurnPlace, seconds: float) -> bool:
        """Wait to be the first; return whether that came in time. Whatever happens, ``leave`` ends it."""
        with self._changed:
            queue = self._queues.setdefault(place.directory, [])
            queue.append(place)
            return self._changed.wait_for(lambda: queue[0] is place, seconds)

    def leave(self, place: TurnPlace) -> None:
        """Let the next one go on; nothing, where the place was left, or forgotten, before."""
        with self._changed:
            queue = self._queues.get(place.directory, [])
            if place in queue:
                queue.remove(place)
            if not queue:
                self._queues.pop(place.directory, None)
            self._changed.notify_all()
