"""Error classes, grouped by the caller's next step: docs/reference/errors.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

#: Packages whose frames a notebook leaves out.
_INNER = {"pyspark_commitlog", "IPython", "ipykernel"}


class CommitLogError(Exception):
    """Base of all errors.

    Attributes:
        on_command_line: Message for a command line, if the usual one suggests a Python call; else empty.
    """

    on_command_line = ""

    def advising(self, call: str, command: str) -> Self:
        """Append the next step to the message: a call or a command."""
        self.on_command_line = f"{self}{command}"
        self.args = (f"{self}{call}",)
        return self

    def __str__(self) -> str:
        # LookupError's children would print a repr; OSError would print "[Errno …]".
        return str(self.args[0]) if self.args else ""

    def _render_traceback_(self) -> list[str]:
        """Return the lines a notebook shows: the caller's frames and the message (IPython's hook)."""
        from traceback import extract_tb, format_list  # notebooks only

        frames = [frame for frame in extract_tb(self.__traceback__) if not _INNER & set(frame.filename.split("/"))]
        lines = [f"{type(self).__name__}: {self}"]
        if self.__cause__ is not None:
            lines.append(f"Caused by {type(self.__cause__).__name__}: {self.__cause__}")
        return [*"".join(format_list(frames)).splitlines(), *lines]


class UsageError(CommitLogError, ValueError):
    """The call is wrong; nothing was touched. Fix it, and call again."""


class ConfigError(UsageError):
    """A topic config has an unknown name or a value not allowed."""


class OptionError(UsageError):
    """A Spark or client option is unknown, out of range or conflicting."""


class InvalidRecordError(UsageError):
    """A column's type is wrong or a record exceeds limits; nothing staged."""


class NotFoundError(CommitLogError, LookupError):
    """A root, topic or group is missing: name another or create it."""


class RootNotFoundError(NotFoundError):
    """There is no commit log at this path."""


class UnknownTopicError(NotFoundError):
    """The root has no such topic (or partition)."""


class UnknownGroupError(NotFoundError):
    """No offsets are committed under this group's name."""


class TopicExistsError(CommitLogError, FileExistsError):
    """The topic exists: use it, or choose another name."""


class ConflictError(CommitLogError):
    """A concurrent change invalidated the call: read again, then decide."""


class TopicChangedError(ConflictError):
    """The topic was deleted, or deleted and recreated, since the last lookup."""


class SchemaChangedError(ConflictError):
    """A record does not fit the columns that a reader began with: start it again."""


class StaleBatchError(ConflictError):
    """A batch id or sequence is below this writer's last commit (R6)."""


class WriterFencedError(ConflictError):
    """A producer with a newer epoch took over this producer id (R6)."""


class StagedExpiredError(ConflictError):
    """A staged chunk below the sweep's floor may be deleted (rule R1)."""


class GroupResetError(ConflictError):
    """The group's offsets were reset or deleted after the committer's generation."""


class CommitFailedError(ConflictError):
    """A commit names a past generation or foreign partitions; nothing committed (R9)."""


class FencedInstanceIdError(ConflictError):
    """Another process joined the group with the same `group_instance_id` (KIP-345)."""


class NonEmptyGroupError(ConflictError):
    """The group has live members: stop them before you reset or delete."""


class AccessDeniedError(CommitLogError, PermissionError):
    """The access rules deny this to the principal: ask an admin."""


class OffsetOutOfRangeError(CommitLogError, LookupError):
    """An offset is outside [log start offset, high watermark]: start inside."""


class LogTruncationError(OffsetOutOfRangeError):
    """A position's records are gone after a restore or unclean election.

    Kafka: `LogTruncationException`.
    """


class OutcomeUnknownError(CommitLogError):
    """A commit may have landed; retry with the same writer id (I5)."""


class NotEnoughReplicasAfterAppendError(OutcomeUnknownError):
    """A commit with acks=all was decided below `min.insync.replicas`.

    It may be lost with those roots; retry with the same writer id (Kafka: `NotEnoughReplicasAfterAppendException`).
    """


class NotSentError(CommitLogError):
    """A record is certainly not in the log: fix the cause, resend."""


class BufferExhaustedError(NotSentError, TimeoutError):
    """A producer's buffer was full for `max_block_ms` (Kafka: `BufferExhaustedException`)."""


class DeliveryTimeoutError(NotSentError, TimeoutError):
    """A record was not committed within `delivery_timeout_ms` (Kafka: `TimeoutException`)."""


class ProducerClosedError(NotSentError):
    """The producer is closed or belongs to the parent process: create another."""


class StorageError(CommitLogError, OSError):
    """The storage refused an operation: fix the cause, then call again."""


class StorageFullError(StorageError):
    """No space is left, or a quota is used up."""


class StorageDeniedError(StorageError):
    """The system denies access until permissions, mount or link change."""


class StorageReadOnlyError(StorageDeniedError):
    """The user can't write to the storage."""


class StorageUnreadableError(StorageDeniedError):
    """The user can't read the storage."""


class SyncFailedError(StorageError):
    """An fsync failed: written data may not survive power loss.

    Another fsync would not show it.
    """


class NotEnoughReplicasError(StorageError):
    """Too few roots are in sync or hold chunks: bring them back.

    Nothing was written. Kafka: `NotEnoughReplicasException`.
    """


class NotLeaderError(StorageError):
    """The leader's root is gone or lacks chunks: bring it back.

    No other root may lead. Kafka: `NotLeaderOrFollowerException`.
    """


class ReplicaNotAvailableError(StorageError):
    """A root does not answer or is behind (Kafka: `ReplicaNotAvailableException`)."""


class RootNotAvailableError(StorageError):
    """The opened root has disappeared: mount its disk.

    An unmounted disk looks empty.
    """

    @classmethod
    def at(cls, url: str) -> Self:
        """Error for a root's URL."""
        return cls(
            f"there is no commit log at {url} now: its disk is not mounted, or its directory was moved. Checkpoints "
            "and committed offsets are fine: mount it and start again"
        )


class UnsupportedError(CommitLogError):
    """Unknown format version or feature, or a filesystem without the needed guarantees."""


class CorruptionError(CommitLogError):
    """Stored bytes differ from those written (CRC, length, identity, position): restore them."""


class KafkaStorageError(CorruptionError):
    """A commit is refused because of damaged partitions (Kafka: `KAFKA_STORAGE_ERROR`).

    Restore the files from a copy and run `maintain`, or give them up with `void`.

    Attributes:
        partitions: Damaged partition -> the damage.
    """

    def __init__(self, message: str = "", partitions: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.partitions = dict(partitions or {})


def missing(error: FileNotFoundError) -> CorruptionError:
    """Error for a missing file that the newest entries name."""
    return CorruptionError(f"{error.filename or error} is missing: restore it from a copy")


def as_reported(error: Exception) -> Exception:
    """Error to report; a missing file is corruption."""
    return missing(error) if isinstance(error, FileNotFoundError) else error


def fault_of(error: Exception, what: str) -> str:
    """Return a check's message for the error that ended it."""
    as_ours = as_reported(error)
    ours = isinstance(as_ours, CommitLogError)
    return str(as_ours) if ours else f"{what} can't be checked: {type(error).__name__}: {error}"


def combine_errors(failures: Sequence[Exception], what: str) -> Exception:
    """Combine failures into one error of the first one's class.

    A single failure is returned as it is; if one is no `CommitLogError`, an `ExceptionGroup` named `what` holds
    all.
    """
    if len(failures) == 1:
        return failures[0]
    if not all(isinstance(failure, CommitLogError) for failure in failures):
        return ExceptionGroup(what, list(failures))
    joined = type(failures[0])("; ".join(dict.fromkeys(map(str, failures))))
    joined.__cause__ = failures[0]
    return joined
