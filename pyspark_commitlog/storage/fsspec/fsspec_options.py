"""fsspec filesystems that may hold a root, and their options."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pyspark_commitlog.errors import UnsupportedError, UsageError
from pyspark_commitlog.storage.object.object_errors import without_values

#: HDFS by HTTP, supported by its atomic rename (`storage.fsspec.webhdfs`).
WEBHDFS = "webhdfs"
INSTEAD = f"use s3://, gs://, az:// or abfs://, {WEBHDFS}:// for HDFS, or a local directory"

_LOOKS_FIRST = "it looks whether a name is taken and writes then, so that two writers may both take it"
_SEEN_HALF = "a file is seen there before its content is whole"
#: protocol -> why it can never hold a log.
_REFUSED = {
    "hdfs": "its client (libhdfs) shows no number of a file, without which two files that were put at one path one "
    "after the other can't be distinguished. WebHDFS reaches the same files: webhdfs://NAMENODE:9870/PATH",
    "sftp": f"{_SEEN_HALF}, and of a file the server says only the second in which it was written",
    "smb": _SEEN_HALF,
    "http": "a web server promises nothing of what is put there",
}
_REFUSED |= {"arrow_hdfs": _REFUSED["hdfs"], "ssh": _REFUSED["sftp"], "https": _REFUSED["http"]}

#: Modules of fsspec's default implementations.
_DEFAULTS = ("fsspec.spec", "fsspec.asyn")
_LOGIN = re.compile(r"://\S*@")
#: Booleans as text, from Spark's options and the command line.
_WORDS = {"true": True, "false": False}


def refuse(root: str, why: str) -> UnsupportedError:
    """Error for a filesystem that can't hold a log."""
    protocol, shown = root.partition(":")[0], _LOGIN.sub("://", root)
    return UnsupportedError(f"{protocol}:// is not supported by this version (root {shown!r}): {INSTEAD}. {why}")


@dataclass(frozen=True, slots=True)
class Filesystem:
    """Picklable factory of a filesystem's instances; `repr` hides option values."""

    url: str
    options: Mapping[str, object] = field(repr=False)

    @property
    def protocol(self) -> str:
        """The URL's protocol."""
        return self.url.partition(":")[0]

    def check(self) -> None:
        """Refuse filesystems known to be unfit; no I/O."""
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
        """Return fsspec's class; refuse an unknown or uninstalled one."""
        from fsspec import get_filesystem_class

        try:
            kind: type[Any] = get_filesystem_class(self.protocol)
        except (ImportError, ValueError) as error:
            if self.protocol == WEBHDFS:
                raise UnsupportedError(
                    f"cannot open {_LOGIN.sub('://', self.url)!r}: a package is missing: "
                    "pip install 'pyspark-commitlog[hdfs]'"
                ) from None
            raise refuse(self.url, f"fsspec says: {error}") from None
        return kind

    @property
    def path(self) -> str:
        """The root's path, without trailing slash."""
        return str(self.kind._strip_protocol(self.url)).rstrip("/")

    @property
    def name(self) -> str:
        """Protocol, host, class and versions."""
        kind = self.kind
        package = kind.__module__.partition(".")[0]
        version = getattr(sys.modules.get(package), "__version__", "of unknown version")
        place = urlsplit(self.url).netloc.rpartition("@")[2] or "its own endpoint"
        given = self.options.get("endpoint_url") or self.options.get("host")
        at = urlsplit(str(given)).netloc.rpartition("@")[2] or str(given).rpartition("@")[2] if given else place
        return f"fsspec filesystem {self.protocol} at {at}, {kind.__qualname__} of {package} {version}"

    def __call__(self) -> Any:
        kind = self.kind
        given = {name: _plain(value) for name, value in self.options.items()}
        try:
            made = kind(**{**kind._get_kwargs_from_urls(self.url), **given, "skip_instance_cache": True})
        except (TypeError, ValueError) as error:
            names = ", ".join(sorted(self.options)) or "(none)"
            line = without_values(str(error).partition("\n")[0], self.options)[:200]
            raise UsageError(f"cannot open {self.url!r} with the storage options {names}: {line}") from None
        except ImportError as error:  # the class's own dependency
            raise refuse(self.url, f"fsspec says: {error}") from None
        listings: Any = getattr(made, "dircache", None)
        if hasattr(listings, "use_listings_cache"):  # not every filesystem takes this option
            listings.use_listings_cache = False
        return made


def creates_exclusively(kind: type[Any]) -> bool:
    """Whether a class's own put supports the mode `create` (pure).

    fsspec's default looks first, then writes.
    """
    for name in ("_pipe_file", "pipe_file"):
        put = getattr(kind, name, None)
        if put is not None and put.__module__ not in _DEFAULTS:
            return "mode" in inspect.signature(put).parameters
    return False


def _plain(value: object) -> object:
    return _WORDS.get(value.lower(), value) if isinstance(value, str) else value
