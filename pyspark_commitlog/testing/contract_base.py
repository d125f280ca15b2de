"""Base of the storage contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import pytest

from pyspark_commitlog.storage import Storage

#: Opens the same root again; picklable, for other processes.
Opener = Callable[[], Storage]
WAIT_SECONDS = 60


class StorageCase(ABC):
    """Base of the contract's tests; raw access bypasses the code under test."""

    #: Whether directories exist apart from their files.
    has_directories = True
    #: Milliseconds by which a file's time may precede the clock's, and within which two may be equal.
    tick_ms = 20
    #: Whether other processes see the same root.
    is_shared = True

    @abstractmethod
    def raw_write(self, storage: Storage, path: str, data: bytes) -> None:
        """Store a file and its directories."""

    @abstractmethod
    def raw_read(self, storage: Storage, path: str) -> bytes | None:
        """Return the stored bytes, or None."""

    @abstractmethod
    def raw_names(self, storage: Storage, directory: str) -> list[str]:
        """Return all names in a directory, temporary ones too; none if it is missing."""

    @abstractmethod
    def raw_temporary(self, storage: Storage, directory: str, modified_ms: int) -> None:
        """Leave a killed writer's temporary file, last written at `modified_ms`; without directories, now."""

    @pytest.fixture
    def storage(self, opener: Opener) -> Storage:
        """Return an opened storage."""
        return opener()
