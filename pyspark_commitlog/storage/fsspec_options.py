"""Which of fsspec's filesystems may hold a root, and how an instance of one is made: URLs and ``storage_options``."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pyspark_commitlog.errors import UnsupportedError, UsageError
from pyspark_commitlog.storage.object_errors import without_values

#: HDFS by its HTTP interface, whose atomic rename the door knows how to use (``storage.webhdfs``).
WEBHDFS = "webhdfs"
INSTEAD = f"use s3://, gs://, az:// or abfs://, {WEBHDFS}:// for HDFS, or a local directory"

_LOOKS_FIRST = "it looks whether a name is taken and writes then, so that two writers may both take it"
_SEEN_HALF = "a file is seen there before its content is whole"
#: protocol -> why no filesystem for it can hold a log, whatever a race says.
_REFUSED = {
    "hdfs": "its client (libhdfs) shows no number of a file, without which two files that were put at one path one "
    "after the other can't be distinguished. WebHDFS reaches the same files: webhdfs://NAMENODE:9870/PATH",
    "sftp": f"{_SEEN_HALF}, and of a file the server says only the second in which it was written",
    "smb": _SEEN_HALF,
    "http": "a web server promises nothing of what is put there",
}
_REFUSED |= {"arrow_hdfs": _REFUSED["hdfs"], "ssh": _REFUSED["sftp"], "https": _REFUSED["http"]}

#: Where fsspec's own ways are that a filesystem has without more.
_DEFAULTS = ("fsspec.spec", "fsspec.asyn")
_LOGIN = re.compile(r"://\S*@")
#: Spark's options and the command line have no more than text.
_WORDS = {"true": True, "false": False}


def refuse(root: str, why: str) -> UnsupportedError:
    """Return the error of a root whose filesystem can't hold a log."""
    protocol, shown = root.partition(":")[0], _LOGIN.sub("://", root)
    return UnsupportedError(f"{protocol}:// is not supported by this version (root {shown!r}): {INSTEAD}. {why}")


@dataclass(frozen=True, slots=True)
class Filesystem:
    """Makes instances of a filesystem in the process that uses them: it can be pickled, they can't.

    ``repr`` shows no option's value.
    """

    url: str
    options: Mapping[str, object] = field(repr=False)

    @property
    def protocol(self) -> str:
        """Return the URL's."""
        return self.url.partition(":")[0]

    def check(self) -> None:
        """Refuse what is known to hold no log; asks no server.

        Raises:
            UsageError: the URL holds a password.
            UnsupportedError: the filesystem is unknown, not installed, or not fit.
        """
        if "::" in self.url:
            raise refuse(self.url, "Chained URLs are not taken: what stands in front caches, or rewrites paths")
        if urlsplit(self.url).password is not None:
            scheme = self.protocol  # no part of the URL but this: it holds a secret
            raise UsageError(f"{scheme}:// URLs hold no passwords: give it as a storage option, or in the environment")
        if self.protocol in _REFUSED:
            raise refuse(self.url, f"Not this one: {_REFUSED[self.protocol]}")
        kind = self.kind
        if self.protocol != WEBHDFS and not creates_exclusively(kind):
            raise refuse(self.url, f"Not {kind.__module__}.{kind.__qualname__}: {_LOOKS_FIRST}")

    @property
    def kind(self) -> type[Any]:
        """Return fsspec's class.

        Raises:
            UnsupportedError: there is none of that name, or its package is not installed.
        """
        from fsspec import get_filesystem_class

        try:
            kind: type[Any] = get_filesystem_class(self.protocol)
        except (ImportError, ValueError) as error:
            raise refuse(self.url, f"fsspec says: {error}") from None
        return kind

    @property
    def path(self) -> str:
        """Return where the root is, as the filesystem names it, without a slash at the end."""
        return str(self.kind._strip_protocol(self.url)).rstrip("/")

    @property
    def name(self) -> str:
        """Return the filesystem, its host, and the versions of what asks it."""
        kind = self.kind
        package = kind.__module__.partition(".")[0]
        version = getattr(sys.modules.get(package), "__version__", "of unknown version")
        place = urlsplit(self.url).netloc.rpartition("@")[2] or "its own endpoint"
        given = self.options.get("endpoint_url") or self.options.get("host")
        at = urlsplit(str(given)).netloc.rpartition("@")[2] or str(given).rpartition("@")[2] if given else place
        return f"fsspec filesystem {self.protocol} at {at}, {kind.__qualname__} of {package} {version}"

    def __call__(self) -> Any:
        """Return a new instance.

        Raises:
            UsageError: an option that the filesystem does not take.
            UnsupportedError: see ``kind``.
        """
        kind = self.kind
        given = {name: _plain(value) for name, value in self.options.items()}
        try:
            made = kind(**{**kind._get_kwargs_from_urls(self.url), **given, "skip_instance_cache": True})
        except (TypeError, ValueError) as error:
            names = ", ".join(sorted(self.options)) or "(none)"
            line = without_values(str(error).partition("\n")[0], self.options)[:200]
            raise UsageError(f"cannot open {self.url!r} with the storage options {names}: {line}") from None
        except ImportError as error:  # what the class itself needs
            raise refuse(self.url, f"fsspec says: {error}") from None
        listings: Any = getattr(made, "dircache", None)
        if hasattr(listings, "use_listings_cache"):  # not every filesystem takes the option of that name
            listings.use_listings_cache = False
        return made


def creates_exclusively(kind: type[Any]) -> bool:
    """Return whether a class has a put of its own that knows the mode ``create`` (pure).

    fsspec's default looks first and writes then; a class that takes no ``mode`` ignores it.
    """
    for name in ("_pipe_file", "pipe_file"):
        put = getattr(kind, name, None)
        if put is not None and put.__module__ not in _DEFAULTS:
            return "mode" in inspect.signature(put).parameters
    return False


def _plain(value: object) -> object:
    """Return a switch for the text of one."""
    return _WORDS.get(value.lower(), value) if isinstance(value, str) else value
