"""Packages that need not be installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_commitlog.errors import UnsupportedError


@contextmanager
def requires(extra: str) -> Iterator[None]:
    """Have a failed import name the extra to install.

    Raises:
        UnsupportedError: an import failed.
    """
    try:
        yield
    except ImportError as error:
        raise UnsupportedError(
            f"a package is missing ({error}): pip install 'pyspark-commitlog[{extra}]', or pip install {extra}"
        ) from error
