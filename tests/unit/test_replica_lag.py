"""Since when roots fail: pushes, and chunks, which have a time of their own."""

from __future__ import annotations

from pyspark_commitlog.replication.protocol.push_lag import Lag


def test_chunks_that_fail_again_and_again_add_up() -> None:
    lag = Lag()
    for at in (0, 40, 80, 119):
        lag.failed("a", at, chunks=True)
    assert lag.seconds("a", 120, chunks=True) == 120
    assert lag.seconds("a", 120) == 0, "it learns entries"
    lag.answered("a")
    assert lag.seconds("a", 120, chunks=True) == 120
    lag.answered("a", chunks=True)
    lag.failed("a", 130, chunks=True)
    assert lag.seconds("a", 131, chunks=True) == 1


def test_a_chunk_that_failed_long_before_says_nothing_of_now() -> None:
    """Else one that fails once would have its root taken out at once, hours after another."""
    lag = Lag()
    lag.failed("a", 0, chunks=True)
    lag.failed("a", 3600, chunks=True)
    assert lag.seconds("a", 3601, chunks=True) == 1
    lag.failed("a", 3600)
    lag.failed("a", 7200)
    assert lag.seconds("a", 7200) == 3600, "each push that is answered clears that"
