"""How numbers and topics read."""

from __future__ import annotations

import pytest

from pyspark_commitlog.text import counted
from pyspark_commitlog.topic_description import Backlog, backlog_line


@pytest.mark.parametrize(
    ("number", "what", "told"),
    [(0, "record", "0 records"), (1, "record", "1 record"), (1234, "byte", "1,234 bytes"), (2, "entry", "2 entries")],
)
def test_things_are_counted_in_the_plural_but_for_one(number: int, what: str, told: str) -> None:
    assert counted(number, what) == told


def test_a_topic_tells_what_waits_to_be_settled() -> None:
    assert backlog_line(Backlog()) == "all is settled"
    assert backlog_line(Backlog(1, 1, 1500)) == "1 journal entry (1 byte) waits to be settled, the oldest for 1 s"
    assert backlog_line(Backlog(3, 2048, 0)) == "3 journal entries (2,048 bytes) wait to be settled, the oldest for 0 s"
