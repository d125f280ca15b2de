"""Source for an outdated PySpark: raises an error that names the version needed."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NoReturn

from pyspark import __version__
from pyspark.sql.datasource import DataSource

from pyspark_commitlog.errors import UnsupportedError

NEEDED = (4, 2)


def is_outdated(version: str) -> bool:
    """Whether a PySpark lacks admission control for Python sources (4.2)."""
    return tuple(int(part) for part in version.split(".")[:2]) < NEEDED


class DefaultSource(DataSource):
    """Source that refuses to be created."""

    def __init__(self, options: MutableMapping[str, str]) -> NoReturn:
        raise UnsupportedError(
            f"pyspark-commitlog needs PySpark 4.2 or newer, this is {__version__}: pip install 'pyspark>=4.2'"
        )

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "commitlog"
