"""Options of a query that Spark hands to the sink, and what the sink makes of them."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.spark.options import sink_options, source_options

GIVEN = {"path": "/data", "topic": "t"}


@pytest.mark.parametrize("name", ["asyncProgressTrackingEnabled", "asyncprogresstrackingenabled"])
@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_asynchronous_progress_tracking_is_refused_with_what_to_do(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=r"option 'asyncProgressTrackingEnabled'='true': .*: leave the option out"):
        sink_options({**GIVEN, name: value})


def test_a_query_that_says_no_to_it_is_taken() -> None:
    interval = {"asyncProgressTrackingCheckpointIntervalMs": "1000"}
    assert sink_options({**GIVEN, "asyncProgressTrackingEnabled": "false", **interval}) == sink_options(GIVEN)


def test_a_reader_does_not_know_it() -> None:
    """It is no reader's option: one who gave it there expects what does not happen."""
    with pytest.raises(OptionError, match="unknown option 'asyncProgressTrackingEnabled'"):
        source_options({"path": "/data", "subscribe": "t", "asyncProgressTrackingEnabled": "false"})
