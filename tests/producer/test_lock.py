"""The one lock of a producer, and Ctrl-C: a second one may meet a wait as it takes the lock back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyspark_commitlog.producer.buffer import Buffer


def test_a_wait_that_two_interrupts_end_holds_the_lock_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the caller would release what another thread holds, and that thread would end."""
    buffer = Buffer(limit=10, max_block_ms=1)
    real: Callable[[object], None] = buffer.room._acquire_restore  # type: ignore[attr-defined]
    interrupts = [KeyboardInterrupt()]

    def restore(state: object) -> None:
        if interrupts:
            raise interrupts.pop()
        real(state)

    monkeypatch.setattr(buffer.room, "_acquire_restore", restore)
    with buffer.lock:
        buffer.take(10, "t", [0])
        with pytest.raises(KeyboardInterrupt):
            buffer.take(1, "t", [0])
        assert not interrupts
        assert buffer.lock._is_owned()  # type: ignore[attr-defined]
    with buffer.lock:
        buffer.give(10)
