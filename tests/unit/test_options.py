"""Options of a query that Spark hands to the sink, and what the sink makes of them."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.spark.read.source_options import source_options
from pyspark_commitlog.spark.write.sink_options import sink_options

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
