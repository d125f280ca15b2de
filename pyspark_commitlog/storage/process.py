"""The running process: its id, and what is done anew in a child that was forked from it."""

from __future__ import annotations

import os
from collections.abc import Callable


def process_id() -> int:
    """Return the id of this process: another one in a forked child."""
    return os.getpid()


def after_fork(act: Callable[[], None]) -> None:
    """Have ``act`` run in every child forked from now on, before anything else of it runs."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)
