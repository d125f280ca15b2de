"""How readers and writers open a root: with what the source gives them, as the principal that the options name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from pyspark_commitlog.root import Root

#: Opens a root, by its path and the ``storage.*`` options. It is pickled with its reader or writer.
OpenRoot: TypeAlias = "Callable[[str, Mapping[str, str]], Root]"


class RootOptions(Protocol):
    """The options that say which root to open."""

    @property
    def path(self) -> str:
        """Return the root's path or URL."""

    @property
    def storage(self) -> Mapping[str, str]:
        """Return the ``storage.*`` options, without the prefix."""

    @property
    def principal(self) -> str | None:
        """Return the name that access rules go by; None for the environment's."""


def opened(open_root: OpenRoot, options: RootOptions) -> Root:
    """Return the root that the options name."""
    return open_root(options.path, options.storage).acting_as(options.principal)
