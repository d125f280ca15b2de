"""The session's time zone, in tasks."""

from __future__ import annotations

from pyspark import TaskContext

ZONE = "spark.sql.session.timeZone"


def session_zone() -> str | None:
    """Return the session's time zone; None if tasks do not know it."""
    context = TaskContext.get()
    return context.getLocalProperty(ZONE) if context else None
