"""Layouts of typed frames: bytes next to Parquet, and the time to decode, for events and for a year of flights.

    python benchmarks/layouts.py [--records 1000000] [--rounds 5]

One core, frames of about 2 MiB; times are the least of the rounds, µs of a core per record. What is there by default
comes last.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from data import events

from pyspark_commitlog.format.columns import storing, typed
from pyspark_commitlog.format.columns.storing import StoredColumn

FLIGHTS = Path(__file__).resolve().parent.parent / "examples" / "data" / "nycflights-2013.parquet"
FRAME_BYTES = 2 * 2**20
_US = 1e6


def plain(column: pa.Array, message: int) -> StoredColumn:
    """Store no column in another form."""
    return StoredColumn(column.view(pa.binary()) if pa.types.is_string(column.type) else column)


def without_numbers(column: pa.Array, message: int) -> StoredColumn:
    """Store text by dictionaries, numbers plain."""
    is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    return storing.store(column, message) if is_text else StoredColumn(column)


LAYOUTS: list[tuple[str, str, Callable[..., StoredColumn] | None]] = [
    ("plain", "zstd", plain),
    ("plain", "lz4", plain),
    ("dictionaries", "zstd", without_numbers),
    ("dictionaries and narrowed numbers", "zstd", None),
    ("dictionaries and narrowed numbers", "lz4", None),
]


def event_columns(count: int) -> pa.Table:
    """Return events as columns."""
    table = events(count, 1)
    rows = [json.loads(value) for value in table["value"].to_pylist()]
    columns = pa.Table.from_pylist(rows)
    columns = columns.set_column(columns.schema.get_field_index("amount"), "amount", columns["amount"].cast(pa.int32()))
    return columns.append_column("at", table["timestamp"])


def flights() -> pa.Table:
    """Return the flights, in types that a topic stores."""
    table = pq.read_table(FLIGHTS)
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(at, field.name, pc.cast(table.column(at), pa.timestamp("us", "UTC"), safe=False))
    return table


def frames(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield rows of a typed topic's frames."""
    fields = [pa.field(str(number), field.type) for number, field in enumerate(table.schema, 1)]
    schema = typed.frame_schema([*fields], None, None)
    stamp = pa.nulls(1, pa.int64()).fill_null(0).view(pa.timestamp("us", "UTC"))
    rows = max(1, table.num_rows * FRAME_BYTES // table.nbytes)
    for batch in table.combine_chunks().to_batches(max_chunksize=min(rows, 65_536)):
        times = pa.repeat(stamp[0], batch.num_rows)
        yield pa.RecordBatch.from_arrays([*batch.columns, times], schema=schema)


def measured(
    table: pa.Table, compression: str, store: Callable[..., StoredColumn] | None, rounds: int
) -> dict[str, Any]:
    """Return bytes, and the least seconds to encode, to decode all, and to decode two columns."""
    batches = list(frames(table))
    best = {"encode": 9e9, "decode": 9e9, "two": 9e9}
    with patch.object(typed, "store", store) if store is not None else nullcontext():
        for _ in range(rounds):
            started = time.perf_counter()
            encoded = [typed.encode(batch, compression) for batch in batches]
            ended = time.perf_counter()
            best["encode"] = min(best["encode"], ended - started)
            for name, columns in (("decode", None), ("two", ("1", "5"))):
                started = time.perf_counter()
                for each in encoded:
                    typed.decode(each.value, each.columns, columns)
                best[name] = min(best[name], time.perf_counter() - started)
    return {"bytes": sum(each.value.size for each in encoded), **best}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print("| data | layout | codec | bytes / Parquet, snappy | encode | decode | two columns |")
    print("|---|---|---|---|---|---|---|")
    for name, table in (("events", event_columns(args.records)), ("flights", flights())):
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="snappy")
        for layout, codec, store in LAYOUTS:
            found = measured(table, codec, store, args.rounds)
            each = [f"{_US * found[part] / table.num_rows:.3f}" for part in ("encode", "decode", "two")]
            print(
                f"| {name} | {layout} | {codec} | {found['bytes'] / sink.tell():.2f} | {' | '.join(each)} |", flush=True
            )


if __name__ == "__main__":
    main()
