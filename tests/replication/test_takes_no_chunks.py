"""A leader that answers, learns entries, and takes no chunks: its disk is full for what is large, or read-only there.

The interleavings, A being the leader:

1. A takes none for the lag: a writer waits so long, then a root leads that has the chunks, and A is taken out.
2. A, or a follower, learns small commits of others meanwhile, and so answers: chunks have a time of their own.
3. A takes some again before the lag is over: it leads on.
4. B takes none either: C leads, which has the chunks; else each would hand over to the other, for ever.
5. Nobody else in sync has the chunks: the writer is told at once.
6. Another process elects B first: the writer goes on there.
7. B is taken out before it is elected: C leads; where that is out, too, nobody else, also where an unclean election is
   allowed: A has what they lack.
8. A is the one metadata root, too: what it does not take can't be decided, whoever leads.
9. No root has the chunk whole: that is not A's doing.
10. What tasks staged goes into an entry, and is too much for one: the committer's chunk is staged where tasks' are.
11. A root fails while a chunk is written to it, and can't remove what it has: the others have the chunk.
"""

from __future__ import annotations

import errno
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from pyspark_commitlog.errors import NotLeaderError
from pyspark_commitlog.replication.leader.replica_staging import StagedOutput
from pyspark_commitlog.replication.protocol import rules
from pyspark_commitlog.storage import OutputFile
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic.write import commit as commit_module
from pyspark_commitlog.topic.write.commit import commit
from tests.support.records import batch_of, stage
from tests.support.replicas import CONFIG, LAG_MS, BoundedClock, Replicated, elect, once_at, takes_no_chunk

SMALL = {**CONFIG, "inline.max.bytes": 4096}
LARGE = Random(1).randbytes(20_000)


@pytest.fixture
def roots(tmp_path: Path) -> Replicated:
    roots = Replicated(tmp_path, clock=BoundedClock())
    roots.create(config=SMALL)
    roots.write(b"0")
    return roots


def test_a_leader_that_takes_no_chunks_for_the_lag_is_replaced(roots: Replicated) -> None:
    roots.hooks["a"] = takes_no_chunk
    began = roots.clock.monotonic()
    roots.write(LARGE, everywhere=True)
    assert roots.clock.monotonic() - began >= LAG_MS / 1000
    assert (roots.leader(), roots.isr()) == ("b", "bc")
    assert [roots.values(root) for root in "bc"] == [[b"0", LARGE]] * 2


@pytest.mark.parametrize(("full", "leader", "isr"), [("a", "b", "bc"), ("c", "a", "ab")])
def test_a_root_that_learns_entries_and_takes_no_chunks_is_replaced(
    roots: Replicated, full: str, leader: str, isr: str
) -> None:
    def learns(operation: str, path: str, moment: str) -> None:
        if operation == "create" and "/staged/" in path:
            assert not roots.decided_log("b").pusher.push().failed
        takes_no_chunk(operation, path, moment)

    roots.hooks[full] = learns
    roots.write(LARGE, everywhere=True)
    assert (roots.leader(), roots.isr()) == (leader, isr)


class _Stuck(OutputFile):
    """A file on a disk that went read-only: it takes nothing, nor can it be removed."""

    def __init__(self, inner: OutputFile) -> None:
        self._inner = inner

    def write(self, *pieces: bytes | memoryview | pa.Buffer) -> None:
        raise OSError(errno.EROFS, "injected: read-only")

    def discard(self) -> None:
        self._inner.discard()
        raise OSError(errno.EROFS, "injected: read-only")


@pytest.mark.parametrize("stuck", ["a", "c"])
def test_a_root_that_fails_in_the_middle_of_a_chunk_keeps_none_from_the_others(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    create = LocalStorage.create

    def created(storage: LocalStorage, path: str) -> OutputFile:
        made = create(storage, path)
        return _Stuck(made) if storage.url.endswith(f"/{stuck}") and "/staged/" in path else made

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", created)
        staged = stage(roots.topic(), batch_of([LARGE]), everywhere=True)
    assert staged.chunk is not None
    there = {root for root in "abc" if list(roots.path.glob(f"{root}/topics/t/*/staged/{staged.chunk.name}"))}
    assert there == {"a", "b", "c"} - {stuck}


def test_all_roots_give_up_a_chunk_though_one_fails(roots: Replicated) -> None:
    storages = [roots.storage(root) for root in "abc"]
    path = f"{roots.topic().paths(roots.topic().newest()[1].topic_id).staged}/{'0' * 20}-x.chunk"
    output = StagedOutput(path, storages)
    output._outputs[storages[0].url] = _Stuck(output._outputs[storages[0].url])
    output.discard()
    assert not [*roots.path.glob("?/topics/t/*/staged/*")]


def test_a_leader_that_takes_chunks_again_leads_on(roots: Replicated) -> None:
    tries = iter(range(5))

    def soon(operation: str, path: str, moment: str) -> None:
        if operation == "create" and next(tries, None) is not None:
            takes_no_chunk(operation, path, moment)

    roots.hooks["a"] = soon
    began = roots.clock.monotonic()
    roots.write(LARGE, everywhere=True)
    assert roots.clock.monotonic() - began < LAG_MS / 1000
    assert (roots.leader(), roots.isr()) == ("a", "abc")
    roots.clock.advance(LAG_MS)
    tries = iter(range(2))
    roots.write(LARGE, everywhere=True)
    assert roots.leader() == "a", "what failed before it took some is over"
    assert [roots.values(root) for root in "abc"] == [[b"0", LARGE, LARGE]] * 3


def test_small_records_of_many_tasks_are_staged_where_a_chunk_is_taken(
    roots: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_module, "MAX_INLINE_BYTES", 2000)
    roots.hooks["a"] = takes_no_chunk
    topic, values = roots.topic(), [b"1", b"2", b"3"]
    staged = [stage(topic, batch_of([value]), task=task, everywhere=True) for task, value in enumerate(values)]
    commit(topic, staged[0].topic_id, staged)
    assert roots.leader() == "b"
    assert roots.values("b") == [b"0", *values]


def test_a_root_leads_that_has_the_chunks(roots: Replicated) -> None:
    roots.hooks["a"] = roots.hooks["b"] = takes_no_chunk
    puts = count()

    def bounded(operation: str, path: str, moment: str) -> None:
        assert operation != "put_if_absent" or next(puts) < 100, "it elects for ever"

    roots.hooks["m"] = bounded
    roots.write(LARGE, everywhere=True)
    assert (roots.leader(), roots.isr(), roots.state().leader_epoch) == ("c", "c", 1)
    assert roots.values("c") == [b"0", LARGE]


def test_a_writer_is_told_at_once_where_nobody_else_in_sync_has_the_chunks(roots: Replicated) -> None:
    pusher = roots.decided_log().pusher
    for root in "bc":
        pusher.shrink(roots.id_of(root), "test")
    joins = roots.id_of("b")
    pusher.change("joining", lambda state, base: rules.joining(state, joins))
    roots.hooks["a"] = takes_no_chunk
    began = roots.clock.monotonic()
    with pytest.raises(NotLeaderError, match="no space is left"):
        roots.write(LARGE, everywhere=True)
    assert roots.clock.monotonic() == began
    assert roots.isr() == "a"


def test_a_writer_goes_on_at_the_leader_that_another_process_elects(roots: Replicated) -> None:
    tries = iter(range(3))

    def elected(operation: str, path: str, moment: str) -> None:
        if operation == "create" and "/staged/" in path and next(tries, None) is None and roots.leader() == "a":
            elect(roots, "c")
        takes_no_chunk(operation, path, moment)

    roots.hooks["a"] = elected
    roots.write(LARGE, everywhere=True)
    assert (roots.leader(), roots.isr(), roots.state().leader_epoch) == ("c", "bc", 1)


@pytest.mark.parametrize("out", ["b", "bc"])
def test_a_root_that_is_taken_out_before_it_is_elected_does_not_lead(tmp_path: Path, out: str) -> None:
    roots = Replicated(tmp_path, clock=BoundedClock())
    roots.create(config={**SMALL, "unclean.leader.election.enable": True})
    roots.write(b"0")
    gone = [roots.id_of(root) for root in out]

    def taken_out() -> None:
        for root in gone:
            roots.decided_log("c").pusher.shrink(root, "test")

    roots.hooks = {"a": takes_no_chunk, "m": once_at("put_if_absent", "t/journal", taken_out)}
    if out == "b":
        roots.write(LARGE, everywhere=True)
        assert (roots.leader(), roots.isr(), roots.values("c")) == ("c", "c", [b"0", LARGE])
    else:
        with pytest.raises(NotLeaderError, match="leads and answers"):
            roots.write(LARGE, everywhere=True)
        assert (roots.leader(), roots.isr(), roots.values("a")) == ("a", "a", [b"0"])


def test_a_leader_that_decides_alone_leads_on(tmp_path: Path) -> None:
    roots = Replicated(tmp_path, clock=BoundedClock(), metadata="a")
    roots.create(config=SMALL)
    elect(roots, "a")
    roots.hooks["a"] = takes_no_chunk
    began = roots.clock.monotonic()
    with pytest.raises(NotLeaderError, match="no space is left"):
        roots.write(LARGE, everywhere=True)
    assert roots.clock.monotonic() == began
    assert roots.leader() == "a"


def test_a_leader_that_is_to_have_a_chunk_which_nobody_has_whole_leads_on(roots: Replicated) -> None:
    topic = roots.topic()
    roots.hooks["a"] = takes_no_chunk
    staged = stage(topic, batch_of([LARGE]), everywhere=True)
    for chunk in roots.path.glob("[bc]/topics/t/*/staged/*"):
        chunk.write_bytes(bytes(len(chunk.read_bytes())))
    began = roots.clock.monotonic()
    with pytest.raises(NotLeaderError, match="no other root has it"):
        commit(topic, staged.topic_id, [staged])
    assert roots.clock.monotonic() == began
    assert (roots.leader(), roots.isr()) == ("a", "abc")
