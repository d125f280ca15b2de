"""Conversion of `timestamp_ntz` by the session's time zone, as Spark's store assignment."""

from __future__ import annotations

import re
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_commitlog.errors import InvalidRecordError
from pyspark_commitlog.spark.common.session_zone import ZONE

#: Java's offset spellings whose prefix Arrow does not know.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-]\d{2}:\d{2})")
_DAY = timedelta(days=1)


def as_instants(batch: pa.RecordBatch, zone: str | None) -> pa.RecordBatch:
    """Convert a `timestamp` column without time zone from wall time in `zone`."""
    place = batch.schema.get_field_index("timestamp")
    if place < 0 or not pa.types.is_timestamp(batch.schema.types[place]) or batch.schema.types[place].tz is not None:
        return batch
    if zone is None:
        raise _refused(f"{ZONE} is not set, so tasks do not know the session's time zone")
    try:
        return batch.set_column(place, "timestamp", _instants(batch.column(place), _arrow_zone(zone)))
    except pa.ArrowInvalid as error:
        raise _refused(f"{ZONE} is {zone!r} ({error})") from error


def _arrow_zone(zone: str) -> str:
    offset = _OFFSET.fullmatch(zone)
    return "UTC" if zone == "Z" else offset[1] if offset else zone


def _instants(local: pa.Array, zone: str) -> pa.Array:
    """Resolve ambiguous times to the earlier instant, as Java does.

    A skipped time takes the offset of a day before.
    """
    first, last = (
        pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent=side) for side in ("earliest", "latest")
    )
    skipped = pc.not_equal(first, last)
    if not pc.any(skipped).as_py():
        return first
    before = pc.assume_timezone(pc.subtract(local, pa.scalar(_DAY)), zone, ambiguous="earliest", nonexistent="earliest")
    return pc.if_else(skipped, pc.add(before, pa.scalar(_DAY)), first)


def _refused(why: str) -> InvalidRecordError:
    return InvalidRecordError(
        f"column 'timestamp' is timestamp_ntz, and {why}: write CAST(timestamp AS TIMESTAMP) AS timestamp, or set "
        f"{ZONE} to a name such as Europe/Berlin. Nothing staged"
    )
