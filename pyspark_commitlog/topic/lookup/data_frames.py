"""A topic in data frame libraries, which need not be installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_commitlog.errors import UnsupportedError
from pyspark_commitlog.topic.lookup.table import TopicScan, group_batches

if TYPE_CHECKING:
    import polars as pl


@contextmanager
def requires(extra: str) -> Iterator[None]:
    """Have a failed import name the extra to install.

    Raises:
        UnsupportedError: an import failed.
    """
    try:
        yield
    except ImportError as error:
        raise UnsupportedError(
            f"a package is missing ({error}): pip install 'pyspark-commitlog[{extra}]', or pip install {extra}"
        ) from error


def lazy_frame(scan: TopicScan) -> pl.LazyFrame:
    """Return a scan as a Polars LazyFrame, read at each `collect`."""
    from polars.io.plugins import register_io_source

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        # Polars names the predicate's columns, too, and at least one; `n_rows` is before the predicate.
        for frame in _frames(scan if with_columns is None else scan.select(with_columns), n_rows, batch_size):
            yield frame if predicate is None else frame.filter(predicate)

    schema = _frame([], scan.schema).schema
    return register_io_source(read, schema=schema, is_pure=True)  # pure: its offsets are fixed


def _frames(scan: TopicScan, n_rows: int | None, batch_size: int | None) -> Iterator[pl.DataFrame]:
    for group in group_batches(scan.batches()):
        frame = _frame(group, scan.schema)
        if n_rows is not None:
            frame = frame.head(n_rows)
            n_rows -= frame.height
        yield from frame.iter_slices(batch_size or max(1, frame.height))
        if n_rows == 0:
            return


def _frame(batches: list[pa.RecordBatch], schema: pa.Schema) -> pl.DataFrame:
    import polars as pl

    frame = pl.from_arrow(pa.Table.from_batches(batches, schema), rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame
