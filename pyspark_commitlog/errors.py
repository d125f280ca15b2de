"""Every error that pyspark-commitlog raises, by what the caller can do about it: docs/reference/errors.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self


class CommitLogError(Exception):
    """Base of all errors.

    ``on_command_line`` says the same for a command line, where the message advises a call of Python; empty
    where it does not.
    """

    on_command_line = ""

    def advising(self, call: str, command: str) -> Self:
        """Return this error, its message ended by what to do next: a call of Python, or a command."""
        self.on_command_line = f"{self}{command}"
        self.args = (f"{self}{call}",)
        return self

    def __str__(self) -> str:
        # LookupError's children would print a repr; OSError would print "[Errno …]".
        return str(self.args[0]) if self.args else ""


class UsageError(CommitLogError, ValueError):
    """The call is wrong; nothing was touched. Fix it, and call again."""


class ConfigError(UsageError):
    """A topic config has an unknown name or a value that is not allowed."""


class OptionError(UsageError):
    """An option of a Spark reader or writer, or of a client, is unknown, out of range, or excludes another."""


class InvalidRecordError(UsageError):
    """A column has the wrong type, or a record breaks the topic's limits. Nothing was staged."""


class NotFoundError(CommitLogError, LookupError):
    """A root, topic or group does not exist: name another, or create it first."""


class RootNotFoundError(NotFoundError):
    """There is no commit log at this path."""


class UnknownTopicError(NotFoundError):
    """The root has no such topic (or partition)."""


class UnknownGroupError(NotFoundError):
    """Nothing is committed under this group's name."""


class TopicExistsError(CommitLogError, FileExistsError):
    """The topic is already there: use it, or choose another name."""


class ConflictError(CommitLogError):
    """Somebody else changed the topic since it was read: read it again, then decide."""


class TopicChangedError(ConflictError):
    """The topic was deleted, or deleted and made again, since it was looked up."""


class StaleBatchError(ConflictError):
    """A batch id or sequence lies below the last one that this writer committed (rule R6)."""


class WriterFencedError(ConflictError):
    """A producer with a newer epoch has taken over this producer id (rule R6)."""


class StagedExpiredError(ConflictError):
    """A staged chunk is older than the sweep's floor; it may be gone (rule R1)."""


class GroupResetError(ConflictError):
    """The group's offsets were reset, or deleted, after the generation that the committer follows."""


class CommitFailedError(ConflictError):
    """A member commits in a generation that is over, or what is not its own: nothing was committed (rule R9)."""


class FencedInstanceIdError(ConflictError):
    """Another process has joined the group with the same ``group_instance_id`` (KIP-345)."""


class NonEmptyGroupError(ConflictError):
    """The group has live members: stop them before its offsets are reset or deleted."""


class AccessDeniedError(CommitLogError, PermissionError):
    """The root's access rules do not allow this to the principal: ask an admin of the root for a rule."""


class OffsetOutOfRangeError(CommitLogError, LookupError):
    """An offset lies outside [log start offset, high watermark]: start from one between them."""


class LogTruncationError(OffsetOutOfRangeError):
    """A position belongs to records that are gone: the root was restored, or an unclean election lost them.

    Kafka: ``LogTruncationException``.
    """


class OutcomeUnknownError(CommitLogError):
    """A commit may or may not have landed. Retrying with the same writer id is safe (invariant I5)."""


class NotEnoughReplicasAfterAppendError(OutcomeUnknownError):
    """A commit with acks=all was decided, on fewer roots in sync than ``min.insync.replicas``.

    It may be lost with them; the same writer id again waits for the same entry (Kafka:
    ``NotEnoughReplicasAfterAppendException``).
    """


class NotSentError(CommitLogError):
    """A record is certainly not in the log: send it again when the cause is gone."""


class BufferExhaustedError(NotSentError, TimeoutError):
    """A producer's buffer was full for ``max_block_ms`` (Kafka: ``BufferExhaustedException``)."""


class DeliveryTimeoutError(NotSentError, TimeoutError):
    """A record could not be committed within ``delivery_timeout_ms`` (Kafka: ``TimeoutException``)."""


class ProducerClosedError(NotSentError):
    """The producer is closed, or belongs to the process that this one was forked from: make a new one."""


class StorageError(CommitLogError, OSError):
    """The storage refused an operation: mend the cause, then call again."""


class StorageFullError(StorageError):
    """No space is left, or a quota is used up."""


class StorageDeniedError(StorageError):
    """The system refuses this to the user: it stays so until somebody changes permissions, the mount, or a link."""


class StorageReadOnlyError(StorageDeniedError):
    """The storage can't be written by this user."""


class StorageUnreadableError(StorageDeniedError):
    """The storage can't be read by this user."""


class SyncFailedError(StorageError):
    """An fsync failed: what was written may not survive power loss, and another fsync would not tell."""


class NotEnoughReplicasError(StorageError):
    """Too few roots are in sync, or hold the chunks, for a commit; nothing was written: bring them back.

    Kafka: ``NotEnoughReplicasException``.
    """


class NotLeaderError(StorageError):
    """The leader's root is gone, or lacks the chunks, and no other root may lead: bring it back.

    Kafka: ``NotLeaderOrFollowerException``.
    """


class ReplicaNotAvailableError(StorageError):
    """A root does not answer, or does not have what was asked of it yet (Kafka: ``ReplicaNotAvailableException``)."""


class RootNotAvailableError(StorageError):
    """The root was there when it was opened, and is not now: mount its disk; one that is not mounted looks empty."""

    @classmethod
    def at(cls, url: str) -> Self:
        """Return the error for a root by its URL."""
        return cls(
            f"there is no commit log at {url} now: its disk is not mounted, or its directory was moved. Checkpoints "
            "and committed offsets are fine: mount it and start again"
        )


class UnsupportedError(CommitLogError):
    """A newer format version, an unknown feature, or a filesystem that can't keep the log safe."""


class CorruptionError(CommitLogError):
    """Stored bytes are not what was written (CRC, length, identity or position do not match): restore them."""


class KafkaStorageError(CorruptionError):
    """A commit is refused whole: the storage of some of its partitions is damaged (Kafka: ``KAFKA_STORAGE_ERROR``).

    ``partitions`` maps each of them to what is damaged. Restore it from a copy and run ``maintain``, or give it up
    with ``void``; then commit again.
    """

    def __init__(self, message: str = "", partitions: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.partitions = dict(partitions or {})


def missing(error: FileNotFoundError) -> CorruptionError:
    """Return the error for a file that the newest entries name and that is not there."""
    return CorruptionError(f"{error.filename or error} is missing: restore it from a copy")


def as_reported(error: Exception) -> Exception:
    """Return the error to report for what ended a part of some work: a missing file is damage."""
    return missing(error) if isinstance(error, FileNotFoundError) else error


def fault_of(error: Exception, what: str) -> str:
    """Return what a check says of ``what`` that an error ended: an error of ours speaks for itself."""
    as_ours = as_reported(error)
    ours = isinstance(as_ours, CommitLogError)
    return str(as_ours) if ours else f"{what} can't be checked: {type(error).__name__}: {error}"


def combine_errors(failures: Sequence[Exception], what: str) -> Exception:
    """Combine failures into one error of the first one's kind.

    It has all their messages, each once. One alone is returned as it is. Where some are no ``CommitLogError`` it is a
    group of all, which ``what`` names.
    """
    if len(failures) == 1:
        return failures[0]
    if not all(isinstance(failure, CommitLogError) for failure in failures):
        return ExceptionGroup(what, list(failures))
    joined = type(failures[0])("; ".join(dict.fromkeys(map(str, failures))))
    joined.__cause__ = failures[0]
    return joined
