"""Commits of a consumer to its group."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark_commitlog.errors import (
    CommitFailedError,
    CommitLogError,
    ConflictError,
    GroupResetError,
    OutcomeUnknownError,
    StorageDeniedError,
    StorageError,
)
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.group_state import GroupState, Position

log = logging.getLogger("pyspark_commitlog.consumer")


class OffsetCommitter:
    """Committer for one consumer's `member`; None after `assign`."""

    def __init__(self, handle: GroupLog, interval_ms: int) -> None:
        self._handle, self._interval = handle, interval_ms / 1000
        self._clock = handle.storage.clock
        self._committed: Sequence[Position] = ()
        self._began = self._clock.monotonic()
        self.member: GroupMember | None = None

    def state(self) -> GroupState:
        """Return the group's committed state, durable."""
        return self._handle.newest()

    def is_commit_due(self) -> bool:
        """Whether an automatic commit is due."""
        return self._clock.monotonic() - self._began >= self._interval

    def commit(self, positions: Sequence[Position], generation: int, metadata: str = "") -> None:
        """Commit all of the positions, or raise; see `GroupLog.advance`.

        `generation`: the last reset that the consumer follows, not to undo a later one; ignored for members.
        """
        if self.member is not None:
            self.member.commit(positions, metadata)
            return
        self._handle.advance(positions, generation, metadata, strict=True)

    def commit_now_and_then(self, positions: Sequence[Position], generation: int) -> bool:
        """Commit automatically; return False if the group was reset or rebalanced.

        A failure warns, and the next commit retries.

        Raises:
            StorageDeniedError: this user may not write the group's files; final.
        """
        before, self._began = self._began, self._clock.monotonic()
        if not positions or positions == self._committed:
            return True
        try:
            self.commit(positions, generation)
            self._committed = positions
        except GroupResetError as error:
            log.warning("%s", error)
            return False
        except CommitFailedError as error:
            log.warning("%s", error)
            self._began = before  # the next poll's positions can be committed at once
            return False
        except (ConflictError, OutcomeUnknownError, StorageError, LookupError) as error:
            if not isinstance(error, CommitLogError) or isinstance(error, StorageDeniedError):
                raise
            log.warning("group %r: a commit of offsets failed, and is tried again: %s", self._handle.name, error)
        return True
