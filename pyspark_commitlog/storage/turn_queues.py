"""Per-directory queues of this process's callers for a turn."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Condition


@dataclass(eq=False, slots=True)
class TurnPlace:
    """A caller's place in a queue; `fd` holds the turn."""

    directory: str
    fd: int | None = None


class TurnQueues:
    """Queues of callers, per directory; only the first proceeds."""

    def __init__(self) -> None:
        self._queues: dict[str, list[TurnPlace]] = {}
        self._changed = Condition()

    def enter(self, place: TurnPlace, seconds: float) -> bool:
        """Wait to be first; return success. Always followed by `leave`."""
        with self._changed:
            queue = self._queues.setdefault(place.directory, [])
            queue.append(place)
            return self._changed.wait_for(lambda: queue[0] is place, seconds)

    def leave(self, place: TurnPlace) -> None:
        """Leave the queue, so that the next proceeds; idempotent."""
        with self._changed:
            queue = self._queues.get(place.directory, [])
            if place in queue:
                queue.remove(place)
            if not queue:
                self._queues.pop(place.directory, None)
            self._changed.notify_all()
