"""The rows of the table, by kind; each takes a ``Bench`` and fills its table."""

from __future__ import annotations

from collections.abc import Callable

from bench import Bench

from rows.batch import read, write
from rows.client import client_append, client_latency, client_read
from rows.cold import cold
from rows.disk import compaction, settle, stored
from rows.driver import find, poll, restart
from rows.latency import latency
from rows.sail import sail
from rows.scan import scan
from rows.small import small
from rows.startup import startup
from rows.streams import stream_read, stream_write
from rows.typed import typed, typed_filter, typed_job

ROWS: dict[str, Callable[[Bench], None]] = {
    "write": write,
    "read": read,
    "scan": scan,
    "sail": sail,
    "stream-read": stream_read,
    "stream-write": stream_write,
    "typed": typed,
    "typed-filter": typed_filter,
    "typed-job": typed_job,
    "small": small,
    "cold": cold,
    "startup": startup,
    "latency": latency,
    "restart": restart,
    "poll": poll,
    "find": find,
    "settle": settle,
    "compaction": compaction,
    "stored": stored,
    "client-read": client_read,
    "client-append": client_append,
    "client-latency": client_latency,
}
#: What is measured in each session.
SIDE_BY_SIDE = ("write", "read", "stream-read")
#: What ``--quick`` measures.
MAIN = ("write", "read", "stream-read", "stream-write", "stored")
