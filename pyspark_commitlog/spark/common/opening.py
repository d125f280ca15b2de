"""Opening of a root, as the principal of the options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from pyspark_commitlog.root.root import Root

#: Opens a root by path and `storage.*` options; pickled with its reader or writer.
OpenRoot: TypeAlias = "Callable[[str, Mapping[str, str]], Root]"


class RootOptions(Protocol):
    """Options that identify a root."""

    @property
    def path(self) -> str:
        """Path or URL of the root."""

    @property
    def storage(self) -> Mapping[str, str]:
        """The `storage.*` options, without the prefix."""

    @property
    def principal(self) -> str | None:
        """Principal for access rules; None for the environment's."""


def opened(open_root: OpenRoot, options: RootOptions) -> Root:
    """Open the root that the options name."""
    return open_root(options.path, options.storage).acting_as(options.principal)
