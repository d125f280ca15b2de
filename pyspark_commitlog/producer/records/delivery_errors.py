"""Errors of deliveries: which are retried, when, and what futures get (pure)."""

from __future__ import annotations

from pyspark_commitlog.errors import (
    CommitLogError,
    ConflictError,
    DeliveryTimeoutError,
    InvalidRecordError,
    NotSentError,
    OutcomeUnknownError,
    ProducerClosedError,
    StorageDeniedError,
    StorageError,
    WriterFencedError,
)
from pyspark_commitlog.storage.clock import Backoff
from pyspark_commitlog.text import counted

#: Log line of a retry.
TRIED_AGAIN = "topic %r: trying again: %s"
#: Warning for records whose futures fail with one error.
NOT_COMMITTED = "topic %r: not committed: %s: %s"
#: Before a retry. Kafka: `retry.backoff.ms`=100, `retry.backoff.max.ms`=1000, each with 20 % of jitter.
RETRY_BACKOFF = Backoff(0.12, 1.2, spread=1 / 3)


def is_retriable(error: Exception) -> bool:
    """Whether a retry may succeed (pure).

    Permission errors and the topic's refusals are final.
    """
    if isinstance(error, StorageDeniedError) or isinstance(error.__cause__, StorageDeniedError | InvalidRecordError):
        return False
    if isinstance(error, CommitLogError):
        return isinstance(error, StorageError | OutcomeUnknownError) or type(error) is ConflictError
    return isinstance(error, OSError)


def final_error(
    error: Exception, topic: str, rows: int, timeout_ms: int, *, doubt: bool, closed: bool
) -> CommitLogError:
    """Error of records that are tried no more after `error`.

    `doubt`: a try may have landed; `closed`: the producer gave up.
    """
    what = counted(rows, "record")
    outcome: CommitLogError
    if isinstance(error, CommitLogError) and not is_retriable(error) and not doubt:
        return error
    if isinstance(error, ConflictError) and type(error) is not ConflictError:
        return error
    if doubt:
        outcome = OutcomeUnknownError(f"topic {topic!r}: {what} may or may not have landed: {error}")
    elif closed:
        outcome = ProducerClosedError(f"topic {topic!r}: closed before sending {what}: {error}")
    else:
        outcome = DeliveryTimeoutError(
            f"topic {topic!r}: {what} could not be committed within delivery_timeout_ms={timeout_ms}: "
            f"{error}. Nothing of it is in the log"
        )
    outcome.__cause__ = error
    return outcome


def overdue_error(topic: str, rows: int, timeout_seconds: float, why: str, for_what: str) -> DeliveryTimeoutError:
    """Error of records not sent in time."""
    return DeliveryTimeoutError(
        f"topic {topic!r}: {why}, and {counted(rows, 'record')} waited for {for_what} for "
        f"delivery_timeout_ms={timeout_seconds * 1000:.0f}. Nothing of it is in the log"
    )


def unanswered(topic: str, rows: int, timeout_ms: int) -> OutcomeUnknownError:
    """Error of records in flight on a storage call that hangs."""
    return OutcomeUnknownError(
        f"topic {topic!r}: storage does not answer, and delivery_timeout_ms={timeout_ms} is over: "
        f"{counted(rows, 'record')} may or may not have landed, or land later. Look whether the disk or the mount hangs"
    )


def unexpected(topic: str, rows: int, error: BaseException, *, doubt: bool) -> CommitLogError:
    """Error of records whose try raised unexpectedly."""
    what = f"topic {topic!r}: the try to commit {counted(rows, 'record')} ended with {error!r}"
    outcome: CommitLogError = (
        OutcomeUnknownError(f"{what}: they may or may not have landed")
        if doubt
        else NotSentError(f"{what}. Nothing of it is in the log")
    )
    outcome.__cause__ = error
    return outcome


def after_failure(failed: CommitLogError, topic: str) -> CommitLogError:
    """Error of a durable producer's records after a failure."""
    if isinstance(failed, WriterFencedError):
        return WriterFencedError(str(failed))
    error = NotSentError(
        f"topic {topic!r}: not sent, since records before them failed ({failed}). Make a new Producer with the same "
        "producer_id, and go on after its last_sequence"
    )
    error.__cause__ = failed
    return error
