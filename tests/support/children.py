"""Forked children, which do something and end."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


def in_a_child(act: Callable[[], object]) -> None:
    """Do something in a forked child, which has as long as it takes on a busy machine, and must not fail."""
    child = os.fork()
    if not child:
        signal.alarm(30)  # if it waits for a thread of its parent's
        try:
            act()
        except BaseException:  # noqa: BLE001 a child never goes on as its parent does
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
