"""Base of the storage contract: opening storage, and raw looks at files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import pytest

from pyspark_commitlog.storage import Storage

#: Opens the same root again, in another process too: it can be pickled.
Opener = Callable[[], Storage]
WAIT_SECONDS = 60


class StorageCase(ABC):
    """Raw access bypasses the code under test; fixtures to give: ``opener``."""

    #: Whether a directory is there apart from what lies in it; object stores have none.
    has_directories = True
    #: Milliseconds that a file's time may be before the clock's, and that may be the same for two files.
    tick_ms = 20
    #: Whether other processes see the same root.
    is_shared = True

    @abstractmethod
    def raw_write(self, storage: Storage, path: str, data: bytes) -> None:
        """Store a file, and its directories."""

    @abstractmethod
    def raw_read(self, storage: Storage, path: str) -> bytes | None:
        """Return the stored bytes; None if there are none."""

    @abstractmethod
    def raw_names(self, storage: Storage, directory: str) -> list[str]:
        """Return all names in a directory, temporary ones too; empty when it does not exist."""

    @abstractmethod
    def raw_temporary(self, storage: Storage, directory: str, modified_ms: int) -> None:
        """Leave a temporary file, as a killed writer does, last written at that time (now, without directories)."""

    @pytest.fixture
    def storage(self, opener: Opener) -> Storage:
        """Return a storage that is opened."""
        return opener()
