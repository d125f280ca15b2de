"""What a commit syncs at each root, as the page on what survives what has it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pyspark_commitlog.topic.write.commit import commit
from tests.support.records import batch_of, stage
from tests.support.replicas import Replicated
from tests.support.syscalls import synced
from tests.support.world import CHUNKS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "what-survives-what.md"
#: The columns: metadata roots, acks, where the records lie; syncs at a metadata root, the leader, a follower.
ROWS = [
    ("1", "all", "entry", 2, 2, 2),
    ("1", "all", "chunk", 2, 4, 4),
    ("1", "1", "entry", 2, 2, 2),
    ("1", "1", "chunk", 2, 4, 4),
    ("3", "all", "entry", 4, 2, 2),
    ("3", "all", "chunk", 4, 4, 4),
    ("3", "1", "entry", 4, 2, 2),
    ("3", "1", "chunk", 4, 4, 4),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:3]))
def test_a_commit_syncs_what_the_page_says(
    row: tuple[str, str, str, int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, acks, where, *counts = row
    roots = Replicated(tmp_path, metadata="mno"[: int(many)])
    topic, acks_all = roots.create(config=CHUNKS if where == "chunk" else {}), acks == "all"
    for value in (b"1", b"2"):
        roots.write(value, acks_all=acks_all, hw_later=True, topic=topic, everywhere=acks_all)
    seen = synced(monkeypatch, roots.path)
    staged = stage(topic, batch_of([b"3"]), everywhere=acks_all)
    commit(topic, staged.topic_id, [staged], hw_later=True, acks_all=acks_all)
    decides, leads, follows = counts
    expected = dict.fromkeys("mno"[: int(many)], decides) | {"a": leads} | dict.fromkeys("bc", follows)
    assert Counter(seen) == expected
    assert f"| {' | '.join(map(str, row))} |" in PAGE.read_text()
