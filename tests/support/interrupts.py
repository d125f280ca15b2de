"""Ctrl-C, line by line."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

#: Every so many of the lines that an operation runs, it is interrupted there: coprime to its loops.
_STRIDE = 13


def interrupted(act: Callable[[], Any], at: int, part: str) -> Any:
    """Call `act`, with a KeyboardInterrupt before the line `at` of a part of the package; True if it ended before.

    Not where a `with` ends: there the interpreter looks for signals behind the call that lets go only. Nor at a
    `try:`, where it does not look for any, and which the table of a `with` around it leaves out.
    """
    left = at

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        name = frame.f_code.co_filename
        if f"/pyspark_commitlog/{part}" not in name:
            return None
        if event == "line" and not linecache.getline(name, frame.f_lineno).strip().startswith(
            ("with ", "async ", "try:")
        ):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(before)
    return True


def lines() -> Iterator[int]:
    return islice(count(1, _STRIDE), 2000)
