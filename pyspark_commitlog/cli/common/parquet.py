"""Parquet files that a command line names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq  # a tenth of a second that few commands need

from pyspark_commitlog.cli.common.arguments import open_parent
from pyspark_commitlog.errors import CommitLogError, InvalidRecordError
from pyspark_commitlog.format.columns.untyped import TIMESTAMP


@contextmanager
def opened_parquet(path: str) -> Iterator[pq.ParquetFile]:
    """Yield a file; an error of its bytes in the block names it.

    Raises:
        InvalidRecordError: there is no such file, or it is no Parquet.
    """
    try:
        storage, name = open_parent(path)
        data = pa.BufferReader(storage.map(name, 0, storage.info(name).size))
        yield pq.ParquetFile(data, coerce_int96_timestamp_unit="us")
    except FileNotFoundError:
        raise InvalidRecordError(f"there is no file {path}") from None
    except CommitLogError:
        raise
    except (pa.ArrowException, OSError) as error:  # OSError: its pages do not decompress
        raise InvalidRecordError(f"{path} is no Parquet file that can be read: {error}") from error


def column_schema(parquet: pq.ParquetFile) -> pa.Schema:
    """Return a file's columns; Spark's timestamps of 96 bits are instants."""
    instants = _instants(parquet)
    return pa.schema(
        [field.with_type(TIMESTAMP) if field.name in instants else field for field in parquet.schema_arrow]
    )


def with_instants(batch: pa.RecordBatch, parquet: pq.ParquetFile) -> pa.RecordBatch:
    """Return rows of a file in the types of its `column_schema`."""
    instants = _instants(parquet)
    for at, name in enumerate(batch.schema.names):
        if name in instants:
            batch = batch.set_column(at, name, batch.column(at).cast(TIMESTAMP))
    return batch


def _instants(parquet: pq.ParquetFile) -> set[str]:
    columns = (parquet.schema.column(at) for at in range(len(parquet.schema)))
    return {column.path for column in columns if column.physical_type == "INT96"}
