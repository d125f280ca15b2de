"""Options of a query that Spark hands to the sink, and what the sink makes of them."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.spark.common.known_options import SINK_OPTIONS, SOURCE_OPTIONS
from pyspark_commitlog.spark.progress.trigger_limits import TriggerLimits
from pyspark_commitlog.spark.read.source_options import source_options
from pyspark_commitlog.spark.write.sink_options import sink_options
from pyspark_commitlog.storage.pace import DEFAULT_IDLE_POLL_INTERVAL_MS

GIVEN = {"path": "/data", "topic": "t"}


@pytest.mark.parametrize("name", ["asyncProgressTrackingEnabled", "asyncprogresstrackingenabled"])
@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_asynchronous_progress_tracking_is_refused_with_what_to_do(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=r"option 'asyncProgressTrackingEnabled'='true': .*: leave the option out"):
        sink_options({**GIVEN, name: value})


def test_a_query_that_says_no_to_it_is_taken() -> None:
    interval = {"asyncProgressTrackingCheckpointIntervalMs": "1000"}
    assert sink_options({**GIVEN, "asyncProgressTrackingEnabled": "false", **interval}) == sink_options(GIVEN)


def test_words_may_have_blanks_around_them() -> None:
    read = {"path": "/data", "subscribe": "t"}
    padded = {"startingOffsets": " Earliest ", "endingOffsets": "latest\n", "failOnDataLoss": " false "}
    plain = {"startingOffsets": "earliest", "endingOffsets": "latest", "failOnDataLoss": "false"}
    assert source_options({**read, **padded}) == source_options({**read, **plain})
    assert source_options({**read, **padded}) != source_options(read)
    assert sink_options({**GIVEN, "acks": " 1 ", "compression": " ZSTD"}) == sink_options(
        {**GIVEN, "acks": "1", "compression": "zstd"}
    )


def test_a_checkpoint_of_a_reader_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    source_options({"path": "/data", "subscribe": "t"})
    assert not caplog.records
    source_options({"path": "/data", "subscribe": "t", "checkpointLocation": "/data/checkpoint"})
    assert caplog.messages == ["option 'checkpointLocation' does nothing on a reader: give it to writeStream"]


def test_a_reader_does_not_know_it() -> None:
    """It is no reader's option: one who gave it there expects what does not happen."""
    with pytest.raises(OptionError, match="unknown option 'asyncProgressTrackingEnabled'"):
        source_options({"path": "/data", "subscribe": "t", "asyncProgressTrackingEnabled": "false"})


@pytest.mark.parametrize("app", ["x" * 4001, "half a character \udc80"])
def test_a_txn_app_id_that_no_entry_can_hold_is_refused(app: str) -> None:
    with pytest.raises(OptionError, match=r"option 'txnAppId'=.*: use a text of up to 4000 characters"):
        sink_options({**GIVEN, "txnAppId": app, "txnVersion": "1"})
    assert sink_options({**GIVEN, "txnAppId": "x" * 4000, "txnVersion": "1"}).txn == ("x" * 4000, 1)


def test_numbers_have_64_bits() -> None:
    with pytest.raises(OptionError, match="'txnVersion'='9223372036854775808': use a whole number"):
        sink_options({**GIVEN, "txnAppId": "a", "txnVersion": str(2**63)})
    assert sink_options({**GIVEN, "txnAppId": "a", "txnVersion": str(2**63 - 1)}).txn == ("a", 2**63 - 1)


def test_a_default_that_is_given_changes_nothing() -> None:
    source, sink = {"path": "/log", "subscribe": "flights"}, {"path": "/log", "createTopic": "true"}
    given = {option.name: option.default for option in SOURCE_OPTIONS if option.default}
    assert len(given) > 5
    assert source_options({**given, **source}) == source_options(source)
    given = {option.name: option.default for option in SINK_OPTIONS if option.default}
    assert len(given) > 5
    assert sink_options({**given, **sink}) == sink_options(sink)


def test_defaults_are_those_of_the_table() -> None:
    source, sink = source_options({"path": "/log", "subscribe": "flights"}), sink_options({"path": "/log"})
    assert (source.limits, source.idle_poll_interval_ms) == (TriggerLimits(), DEFAULT_IDLE_POLL_INTERVAL_MS)
    assert (source.fail_on_data_loss, source.include_headers, source.push_down) == (True, False, False)
    assert (sink.acks_all, sink.partitioner, sink.skip_older, sink.create) == (True, "sticky", False, None)
