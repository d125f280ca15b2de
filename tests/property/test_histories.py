"""Random histories of a topic against a model that is a list of records per partition and a few integers."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pyspark_commitlog.errors import ConflictError, StagedExpiredError
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state import side_files as side_tables
from pyspark_commitlog.topic.write import writers as writers_module
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.staging import Staged
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction
from tests.property.strategies import examples
from tests.support.records import append, batch_of, read_partition, stage
from tests.support.verify import verify
from tests.support.world import World

_IN_MEMORY = Path("/dev/shm")
_CONFIGS = st.fixed_dictionaries(
    {
        "inline.max.bytes": st.sampled_from([0, 700, 65536]),
        "segment.bytes": st.sampled_from([1024, 5000, 2**20]),
        "segment.index.bytes": st.sampled_from([48, 4096]),
        "index.interval.bytes": st.sampled_from([0, 500, 4096]),
        "batch.size": st.sampled_from([1024, 16384]),
        "compression.type": st.sampled_from(["none", "lz4", "zstd"]),
        "file.delete.delay.ms": st.sampled_from([0, 1000]),
        "staged.retention.ms": st.just(5000),
    }
)


@dataclass
class Model:
    """What must be true: values by partition, and what each writer did last."""

    values: list[list[bytes | None]] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    counter: int = 0

    def take(self, sizes: list[int], partitions: list[int]) -> tuple[list[bytes], list[int]]:
        """Return new values of the given sizes, and the partition of each."""
        values = []
        for size in sizes:
            self.counter += 1
            values.append(b"%07d" % self.counter + b"." * size)
        return values, [partition % len(self.values) for partition in partitions[: len(values)]]

    def add(self, values: list[bytes], partitions: list[int]) -> None:
        """Append."""
        for value, partition in zip(values, partitions, strict=True):
            self.values[partition].append(value)


_SIZES = st.lists(st.sampled_from([0, 3, 50, 900]), min_size=1, max_size=12)
_PLACES = st.lists(st.integers(0, 9), min_size=12, max_size=12)


class History(RuleBasedStateMachine):
    """One topic; several processes that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None)
        self.world = World(Path(self.path) / "root")
        self.model = Model()
        self.sleeping: list[tuple[Staged, list[bytes], list[int]]] = []
        self.patched = pytest.MonkeyPatch()

    @initialize(config=_CONFIGS, partitions=st.integers(1, 4), tables=st.sampled_from([60, 16384]))
    def create(self, config: dict[str, object], partitions: int, tables: int) -> None:
        """Make the topic; small tables go to side files in some histories."""
        self.patched.setattr(side_tables, "TABLE_BYTES", tables)
        self.patched.setattr(writers_module, "WRITER_ROWS", 2)
        self.world.create(partitions, config)
        self.topic = self.world.handle()
        self.model.values = [[] for _ in range(partitions)]

    @rule(sizes=_SIZES, places=_PLACES)
    def write(self, sizes: list[int], places: list[int]) -> None:
        """Append at least once."""
        values, partitions = self.model.take(sizes, places)
        append(self.topic, batch_of(values, partition=partitions))
        self.model.add(values, partitions)

    @rule(sizes=_SIZES, places=_PLACES, writer=st.sampled_from("abcde"), step=st.integers(-1, 3))
    def write_in_a_transaction(self, sizes: list[int], places: list[int], writer: str, step: int) -> None:
        """Append under a version: new, the last one again, or one below."""
        version = self.model.versions.get(writer, 10) + step
        values, partitions = self.model.take(sizes, places)
        known = writer in self.model.versions
        try:
            done = append(self.topic, batch_of(values, partition=partitions), writer=Transaction(writer, version))
        except ConflictError:
            assert known
            assert step < 0
            return
        assert done.skipped == (known and step == 0)
        if not done.skipped:
            self.model.versions[writer] = version
            self.model.add(values, partitions)

    @rule(sizes=_SIZES, places=_PLACES, again=st.booleans())
    def produce(self, sizes: list[int], places: list[int], again: bool) -> None:
        """Append as an idempotent producer, and perhaps send the batch twice."""
        values, partitions = self.model.take(sizes, places)
        first = self.model.sequences.get("p", -1) + 1
        batch = ProducerBatch("p", 0, first, first + len(values) - 1)
        assert not append(self.topic, batch_of(values, partition=partitions), writer=batch).skipped
        self.model.sequences["p"] = batch.last
        self.model.add(values, partitions)
        if again:
            assert append(self.world.handle(), batch_of(values, partition=partitions), writer=batch).skipped

    @rule(sizes=_SIZES, places=_PLACES)
    def stage_and_sleep(self, sizes: list[int], places: list[int]) -> None:
        """Stage; the driver commits later, if ever."""
        values, partitions = self.model.take(sizes, places)
        self.sleeping.append((stage(self.topic, batch_of(values, partition=partitions)), values, partitions))

    @precondition(lambda self: self.sleeping)
    @rule()
    def wake_up(self) -> None:
        """Commit what was staged long ago: it is in, or it was swept and refused."""
        staged, values, partitions = self.sleeping.pop(0)
        try:
            commit(self.topic, staged.topic_id, [staged])
            self.model.add(values, partitions)
        except StagedExpiredError:
            assert staged.chunk is not None

    @precondition(lambda self: len(self.model.values) < 8)
    @rule(more=st.integers(1, 2))
    def add_partitions(self, more: int) -> None:
        """Grow."""
        self.world.log().topic("t").add_partitions(len(self.model.values) + more)
        self.model.values += [[] for _ in range(more)]

    @rule(key=st.sampled_from(["segment.bytes", "batch.size"]), value=st.sampled_from([1024, 3000, 2**20]))
    def alter(self, key: str, value: int) -> None:
        """Change how segments roll and frames merge."""
        self.world.log().topic("t").alter({key: value})

    @rule(budget=st.sampled_from([None, 0.0, 0.003]))
    def settle(self, budget: float | None) -> None:
        """Settle, perhaps only a little."""
        settle(self.topic, self.topic.newest()[1].topic_id, budget_seconds=budget)

    @rule(wait=st.sampled_from([0, 1, 999, 1000, 5000]))
    def maintain(self, wait: int) -> None:
        """Let time pass, then settle, sweep and collect."""
        self.world.clock.advance(wait)
        self.world.maintain()

    @rule()
    def reopen(self) -> None:
        """Go on as a fresh process."""
        self.topic = self.world.handle()

    @invariant()
    def all_is_there(self) -> None:
        """Every partition reads as the model, with dense offsets, by the old process; the bytes check out."""
        for partition, expected in enumerate(self.model.values):
            found = read_partition(self.topic, partition)
            assert [record.value for record in found] == expected
            assert [record.offset for record in found] == list(range(len(expected)))
        if self.model.values:
            verify(self.topic)

    def teardown(self) -> None:
        """Check once more as a fresh process, after all is settled; nothing but what is needed is left."""
        if self.model.values:
            for _ in range(3):
                self.world.clock.advance(1000)
                self.world.maintain()
            assert verify(self.world.handle()) == sum(map(len, self.model.values))
            assert self.world.values() == [value for values in self.model.values for value in values]
            assert len(self.world.entries()) <= 2
            assert len(self.world.files("/side/")) <= 8
        self.patched.undo()
        shutil.rmtree(self.path)


TestHistories = History.TestCase
TestHistories.settings = settings(
    max_examples=examples(25),
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
