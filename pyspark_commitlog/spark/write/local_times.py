"""Spark's ``timestamp_ntz`` as instants, by the session's time zone, as Spark's own store assignment has them."""

from __future__ import annotations

import re
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from pyspark_commitlog.errors import InvalidRecordError

_ZONE = "spark.sql.session.timeZone"
#: Java's spellings of an offset that Arrow does not know with their prefix.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-]\d{2}:\d{2})")
_DAY = timedelta(days=1)


def session_zone() -> str | None:
    """Return the session's time zone; None if no setting of the session gives it to tasks."""
    context = TaskContext.get()
    return context.getLocalProperty(_ZONE) if context else None


def as_instants(batch: pa.RecordBatch, zone: str | None) -> pa.RecordBatch:
    """Return the batch with a ``timestamp`` without time zone taken as wall time in ``zone``.

    Raises:
        InvalidRecordError: the zone is not known, to the session's tasks or to Arrow.
    """
    place = batch.schema.get_field_index("timestamp")
    if place < 0 or not pa.types.is_timestamp(batch.schema.types[place]) or batch.schema.types[place].tz is not None:
        return batch
    if zone is None:
        raise _refused(f"{_ZONE} is not set, so tasks do not know the session's time zone")
    try:
        return batch.set_column(place, "timestamp", _instants(batch.column(place), _arrow_zone(zone)))
    except pa.ArrowInvalid as error:
        raise _refused(f"{_ZONE} is {zone!r} ({error})") from error


def _arrow_zone(zone: str) -> str:
    offset = _OFFSET.fullmatch(zone)
    return "UTC" if zone == "Z" else offset[1] if offset else zone


def _instants(local: pa.Array, zone: str) -> pa.Array:
    """Return instants as Java has them: of two the earlier one, and none that is skipped is lost.

    Wall time that a change of the clocks skips has the offset of before: that of the same time a day earlier.
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
        f"{_ZONE} to a name such as Europe/Berlin. Nothing staged"
    )
