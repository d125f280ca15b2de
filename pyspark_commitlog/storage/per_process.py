"""Values that a forked child makes for itself: its parent's threads are gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from pyspark_commitlog import metrics

_Value = TypeVar("_Value")


def after_fork(act: Callable[[], None]) -> None:
    """Run `act` first in every child forked from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


after_fork(metrics.reset)


class PerProcess(Generic[_Value]):
    """A value of this process, made by `make`.

    In a forked child `leave` closes the parent's, and must not raise.
    """

    __slots__ = ("__weakref__", "_leave", "_make", "value")

    def __init__(self, make: Callable[[], _Value], leave: Callable[[_Value], object] = lambda _: None) -> None:
        self._make, self._leave = make, leave
        self.renew()  # not on first use: a lock around that could stop a finalizer
        _every.add(self)

    def renew(self) -> None:
        """Make a new value, in a forked child or a test."""
        self.value = self._make()


_every: WeakSet[PerProcess[Any]] = WeakSet()


def _renew_all() -> None:
    parents = [(each, each.value) for each in list(_every)]
    for each, _ in parents:
        each.renew()
    for each, value in parents:  # only now: finalizers use the new values
        each._leave(value)


after_fork(_renew_all)
