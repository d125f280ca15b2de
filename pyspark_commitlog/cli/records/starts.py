"""Start and stop of `commitlog cat`: kcat's `-o`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_commitlog.cli.common.arguments import instant_of
from pyspark_commitlog.errors import UsageError

_NAMES = ("beginning", "end", "stored")


@dataclass(frozen=True, slots=True)
class StartAndStop:
    """Start and stop of `-o`: a name, an offset, or times in ms.

    The offset counts from the end if `back`. It starts at `since`, and stops before `until`.
    """

    name: str | None = None
    offset: int | None = None
    back: bool = False
    since: int | None = None
    until: int | None = None

    def start(self, low: int, high: int, at_since: int | None) -> int:
        """Offset to start at, between log start offset `low` and high watermark `high`.

        `at_since`: offset of the first record not before `since`, if any.
        """
        if self.since is not None:
            return high if at_since is None else at_since
        if self.name == "end":
            return high
        if self.offset is None:
            return low
        return max(low, min(high, high - self.offset if self.back else self.offset))

    def is_outside(self, low: int, high: int) -> bool:
        """Whether a partition lacks the offset."""
        return self.offset is not None and not self.back and not low <= self.offset <= high


def parse_start_and_stop(given: Sequence[str]) -> StartAndStop:
    """Parse `-o`; `s@` and `e@` go together."""
    start: StartAndStop | None = None
    until: int | None = None
    for text in given:
        kind, at, time = text.partition("@")
        if at and kind in ("s", "e"):
            instant = instant_of(f"-o {kind}@", time)
            if kind == "e" and until is None:
                until = instant
                continue
            parsed = StartAndStop(since=instant) if kind == "s" else None
        else:
            parsed = _start(text)
        if parsed is None or start is not None:
            raise UsageError(f"-o {', -o '.join(given)}: give one start, and one e@ to stop at")
        start = parsed
    start = start or StartAndStop()
    return StartAndStop(start.name, start.offset, start.back, start.since, until)


def _start(text: str) -> StartAndStop:
    if text in _NAMES:
        return StartAndStop(name=text)
    try:
        number = int(text)
    except ValueError:
        forms = "use beginning, end, stored, an offset, -N for the last N, s@TIME or e@TIME"
        raise UsageError(f"-o {text}: {forms}") from None
    return StartAndStop(offset=abs(number), back=text.startswith("-"))


def parse_partitions(text: str | None) -> list[int] | None:
    """Parse `0,2`."""
    if text is None:
        return None
    try:
        return sorted({int(number) for number in text.split(",")})
    except ValueError:
        raise UsageError(f"-p {text}: use partition numbers, as in 0,2") from None
