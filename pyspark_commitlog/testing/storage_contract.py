"""What every ``Storage`` must do: subclass ``StorageContract``, and say how to open one and look at what it stored."""

from __future__ import annotations

from pyspark_commitlog.testing.contract_base import Opener
from pyspark_commitlog.testing.contract_files import FileContract
from pyspark_commitlog.testing.contract_locks import LockContract
from pyspark_commitlog.testing.contract_puts import PutContract
from pyspark_commitlog.testing.contract_reads import ReadContract

__all__ = ["Opener", "StorageContract"]


class StorageContract(PutContract, FileContract, ReadContract, LockContract):
    """The tests. To give: the fixture ``opener`` (an ``Opener``), and raw access to what is stored."""
