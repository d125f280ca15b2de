"""A topic as a `pyarrow.dataset.Dataset`, for engines that query one: DuckDB, Polars, Arrow itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from pyspark_commitlog.errors import UnsupportedError, UsageError
from pyspark_commitlog.topic.lookup.table import TopicScan, group_batches

#: Names of columns, or expressions by the names of their results; None: all columns.
Projection = Sequence[str] | Mapping[str, pc.Expression] | None
#: Options of Arrow's own scanner: this one reads ahead as the storage needs, in one thread.
_IGNORED = frozenset(
    {
        "batch_readahead",
        "fragment_readahead",
        "fragment_scan_options",
        "use_threads",
        "cache_metadata",
        "memory_pool",
    }
)
#: What a reference by number, which depends on the columns beside it, is called in an expression's text.
_BY_NUMBER = "FieldPath("
_NO_FILE = "/the dataset of a topic is read by its own scanner(), not by pyarrow.dataset.Scanner.from_dataset"


@dataclass(frozen=True)
class TopicScanner:
    """Reads of a topic's records under a filter and a projection, like a `pyarrow.dataset.Scanner`.

    Not a subclass: Arrow's scanner holds up to 1 GiB that nobody has asked for yet. Every read starts again.
    """

    scan: TopicScan
    projected_schema: pa.Schema
    columns: Projection
    predicate: pc.Expression | None
    batch_size: int | None

    @property
    def dataset_schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self.scan.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records as they are read."""
        for batch in self._filtered():
            step = self.batch_size or max(1, batch.num_rows)
            for at in range(0, batch.num_rows, step):
                yield batch.slice(at, step)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the records as a reader, which reads on as it is read."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return the records as a table; memory must hold them."""
        return pa.Table.from_batches(list(self.to_batches()), self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first records."""
        batches, rows = list[pa.RecordBatch](), 0
        for batch in self.to_batches() if num_rows > 0 else ():
            batches.append(batch.slice(0, num_rows - rows))
            rows += batches[-1].num_rows
            if rows == num_rows:
                break
        return pa.Table.from_batches(batches, self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Return records by their place in the scan, in the order of `indices`."""
        wanted = np.asarray(indices, np.int64)
        order = np.argsort(wanted, kind="stable")
        ascending, batches, rows = wanted[order], list[pa.RecordBatch](), 0
        for batch in self.to_batches():
            low, high = np.searchsorted(ascending, (rows, rows + batch.num_rows))
            batches.append(batch.take(pa.array(ascending[low:high] - rows)))
            rows += batch.num_rows
            if high == len(ascending):
                break
        if len(wanted) and not 0 <= ascending[0] <= ascending[-1] < rows:
            raise UsageError(f"take: the indices {ascending[0]} to {ascending[-1]} are not all in 0 to {rows - 1}")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return pa.Table.from_batches(batches, self.projected_schema).take(pa.array(places))

    def count_rows(self) -> int:
        """Return the number of records."""
        return sum(batch.num_rows for batch in replace(self, columns=[])._filtered())

    def _filtered(self) -> Iterator[pa.RecordBatch]:
        if self.predicate is None and not isinstance(self.columns, Mapping):
            scan = self.scan if self.columns is None else self.scan.select(self.columns)
            yield from scan.batches()
            return
        scan = self.scan.select(needed_columns(self.scan.schema, self.columns, self.predicate))
        for group in group_batches(scan.batches()):
            yield from _bound(scan.schema, group, self.columns, self.predicate).to_table().to_batches()


class TopicDataset(ds.UnionDataset):  # type: ignore[misc]
    """A topic's records between fixed offsets, read when it is scanned; `Topic.dataset` returns it.

    Engines get the records by `scanner`. Arrow's C++ scanner, which knows nothing of it, fails at a file that does not
    exist: without any dataset below, as Lance's, it would end the process.
    """

    def __init__(self, scan: TopicScan, predicate: pc.Expression | None = None) -> None:
        self._scan, self._predicate = scan, predicate
        fragment = ds.IpcFileFormat().make_fragment(_NO_FILE, LocalFileSystem())
        super().__init__(scan.schema, [ds.FileSystemDataset([fragment], scan.schema, fragment.format)])

    def __reduce__(self) -> NoReturn:
        raise UsageError("the dataset of a topic can't be pickled: call Topic.dataset in the process that reads it")

    def __repr__(self) -> str:
        return f"TopicDataset({self._scan.topic.name!r}, {', '.join(self.schema.names)})"

    @property
    def schema(self) -> pa.Schema:
        """Schema of the columns."""
        return self._scan.schema

    def scanner(
        self,
        columns: Projection = None,
        filter: pc.Expression | None = None,  # noqa: A002 Arrow's name
        batch_size: int | None = None,
        **options: Any,
    ) -> TopicScanner:
        """Return a scanner of some columns of the records that a filter lets through.

        Args:
            columns: names, or expressions by the names of their results; None: all.
            filter: an expression over any of the dataset's columns.
            batch_size: maximum rows of a batch.
            **options: of Arrow's own scanner; ignored.

        Raises:
            UsageError: an unknown option.
            pyarrow.ArrowInvalid: an unknown column, or a filter that its type does not take.
        """
        if unknown := options.keys() - _IGNORED:
            raise UsageError(
                f"a topic's dataset takes no {', '.join(sorted(unknown))}: use columns, filter, batch_size"
            )
        predicate = self._and(filter)
        projected = _bound(self.schema, [], columns, predicate).projected_schema
        return TopicScanner(self._scan, projected, columns, predicate, batch_size)

    def filter(self, expression: pc.Expression) -> TopicDataset:
        """Return the dataset of the records that an expression lets through."""
        return TopicDataset(self._scan, self._and(expression))

    def _and(self, predicate: pc.Expression | None) -> pc.Expression | None:
        if self._predicate is None or predicate is None:
            return predicate if self._predicate is None else self._predicate
        return self._predicate & predicate

    @property
    def partition_expression(self) -> NoReturn:
        """Refuse: Kafka's partitions are no directories."""
        _refuse("partition_expression")

    def get_fragments(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: segments are no fragments that Arrow could read."""
        _refuse("get_fragments")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Refuse: the columns are the topic's."""
        _refuse("replace_schema")

    def sort_by(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: it is done in memory."""
        _refuse("sort_by")

    def join(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: it is done in memory."""
        _refuse("join")

    def join_asof(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: it is done in memory."""
        _refuse("join_asof")


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(
        f"the dataset of a topic has no {name}: use the table that to_table() returns, or query the dataset with "
        "DuckDB or Polars"
    )


def needed_columns(schema: pa.Schema, columns: Projection, predicate: pc.Expression | None) -> list[str]:
    """Return the columns that a projection and a predicate read, in the schema's order (pure).

    Arrow does not say which columns an expression names: those are needed without which it can't be bound.
    """
    expressions = [
        *(columns.values() if isinstance(columns, Mapping) else ()),
        *([] if predicate is None else [predicate]),
    ]
    if columns is None or any(_BY_NUMBER in str(expression) for expression in expressions):
        return list(schema.names)
    known = set() if isinstance(columns, Mapping) else set(columns)
    names = [name for name in schema.names if name not in known]
    needed = known | (set(_required(schema, names, columns, predicate)) if expressions else set())
    return [name for name in schema.names if name in needed]


def _required(schema: pa.Schema, names: list[str], columns: Projection, predicate: pc.Expression | None) -> list[str]:
    """Return those of `names` without which a scan can't be bound, by halving them."""
    if not names or _binds(schema, set(names), columns, predicate):
        return []
    if len(names) == 1:
        return names
    half = len(names) // 2
    return [*_required(schema, names[:half], columns, predicate), *_required(schema, names[half:], columns, predicate)]


def _binds(schema: pa.Schema, without: set[str], columns: Projection, predicate: pc.Expression | None) -> bool:
    try:
        _bound(pa.schema([field for field in schema if field.name not in without]), [], columns, predicate)
    except (pa.ArrowInvalid, KeyError):
        return False
    return True


def _bound(
    schema: pa.Schema, batches: Sequence[pa.RecordBatch], columns: Projection, predicate: pc.Expression | None
) -> ds.Scanner:
    return ds.Scanner.from_batches(
        iter(batches), schema=schema, columns=columns if isinstance(columns, Mapping | None) else list(columns),
        filter=predicate, use_threads=False,
    )  # fmt: skip
