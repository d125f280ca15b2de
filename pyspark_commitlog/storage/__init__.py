"""`open_storage` picks the storage backend for a root's URL.

Backends are imported on use.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote

from pyspark_commitlog.errors import StorageError, UnsupportedError, UsageError
from pyspark_commitlog.format.paths import REPLICAS_JOURNAL, ROOT_MARKER as _MARKER
from pyspark_commitlog.storage.base import (
    TEMPORARY,
    AppendFile,
    FileInfo,
    Holder,
    NotPutError,
    Options,
    OutputFile,
    Storage,
)
from pyspark_commitlog.storage.clock import Clock
from pyspark_commitlog.storage.process import process_name

__all__ = [
    "TEMPORARY",
    "AppendFile",
    "Clock",
    "FileInfo",
    "Holder",
    "NotPutError",
    "OutputFile",
    "Storage",
    "environment",
    "first_that_answers",
    "is_url",
    "open_peer",
    "open_storage",
    "process_name",
]


_LOCAL_PROTOCOLS = ("file", "local")
_OBJECT_PROTOCOLS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")
#: `bootstrap.servers`: `host:port`, several of them with commas.
_BROKERS = re.compile(r"[\w.-]+:\d{1,5}(,[\w.-]+:\d{1,5})*")

_HOME = re.compile(r"~[\w.-]*(/|$)")
#: `s3:/bucket`, as `pathlib` leaves a URL.
_SHORT_URL = re.compile(rf"({'|'.join(_OBJECT_PROTOCOLS)}|webhdfs|hdfs|https?):/*(.*)", re.IGNORECASE)


def environment(name: str) -> str | None:
    """Return an environment variable; None if unset or empty."""
    return os.environ.get(name) or None


def root_text(root: object) -> str:
    """Return a root, a text or path object, as text.

    Raises:
        UsageError: it is neither.
    """
    try:
        text = os.fspath(root)  # type: ignore[call-overload]
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise UsageError(
            f"a root is a path or a URL, as text or a path object, and this is {type(root).__name__}: {root!r:.80}"
        )
    return text


def open_storage(root: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None) -> Storage:
    """Storage of `root`; changes nothing.

    Args:
        root: path, path object or URL: `file://`, `s3://`, `gs://`, `az://`, `abfs://`, `webhdfs://`,
            `memory://`, or another fsspec filesystem's.
        storage_options: as the URL's fsspec filesystem takes them (`key`, `secret`, `endpoint_url` …); for a
            path, those of its replicas at URLs.

    Raises:
        UsageError: no root, options for a path, or a URL without bucket or with a password.
        UnsupportedError: put-if-absent is not known to be atomic there; or Windows.
    """
    if sys.platform == "win32":
        raise UnsupportedError(
            f"cannot open {root!r}: this package works with files as Linux does, and not on Windows itself. Run Python "
            "in WSL (Windows Subsystem for Linux: wsl --install), with the root on its own disk"
        )
    root = root_text(root)
    if not root:
        raise UsageError("no root given: name the directory of the commit log, for example /data/commitlog")
    several = split_roots(root)
    _refuse_other_names(root, several)
    if len(several) > 1:
        from pyspark_commitlog.storage.deadline_storage import with_deadlines

        return _first(several, lambda each: with_deadlines(open_peer(each, storage_options, storage_options)))
    storage = _open(root, storage_options)
    storage.peer_options = Options(storage_options or {})
    return storage


def open_peer(
    root: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None,
    peer_options: Mapping[str, object] | None,
) -> Storage:
    """Storage of one of several roots.

    Args:
        root: a path or a URL.
        storage_options: for it, if it is a URL.
        peer_options: for the other roots at URLs.

    Raises:
        UsageError, UnsupportedError: see `open_storage`.
    """
    root = root_text(root)
    storage = open_storage(root, storage_options if is_url(root) else None)
    storage.peer_options = Options(peer_options or {})
    return storage


Storage.open_peer = open_peer


def is_url(root: str) -> bool:
    """Whether a root is a URL that takes storage options."""
    protocol, colon, _ = root.partition("://")
    return bool(colon) and protocol not in _LOCAL_PROTOCOLS


def _open(root: str, storage_options: Mapping[str, object] | None) -> Storage:
    from pyspark_commitlog.storage.local.local import LocalStorage

    if "://" not in root and not root.startswith("file:"):
        _refuse_addresses(root)
        if storage_options and not os.path.isdir(os.path.join(root, REPLICAS_JOURNAL)):
            raise UsageError(
                f"storage options {', '.join(sorted(storage_options))} are for the filesystem of a URL, and {root!r} "
                "is a path: leave them out; if it belongs together with roots that are URLs, it is not mounted"
            )
        return LocalStorage(root)
    protocol = root.partition(":")[0]
    if protocol in _OBJECT_PROTOCOLS:
        from pyspark_commitlog.storage.object.object_store import ObjectStorage

        return ObjectStorage(root, storage_options)
    if protocol == "webhdfs":
        from pyspark_commitlog.storage.fsspec.webhdfs import WebHdfsStorage

        return WebHdfsStorage(root, storage_options)
    if protocol not in _LOCAL_PROTOCOLS:
        from pyspark_commitlog.storage.fsspec.fsspec_store import FsspecStorage

        return FsspecStorage(root, storage_options)
    path = _local_path(root)
    if storage_options:
        from fsspec.core import url_to_fs

        try:
            url_to_fs(f"file://{path}", **dict(storage_options))
        except (ImportError, ValueError) as error:
            raise UnsupportedError(f"cannot open {root!r}: {error}") from error
    return LocalStorage(path)


def _local_path(url: str) -> str:
    """Unescaped path of a `file:` URL.

    Raises:
        UsageError: another host, or no absolute path.
    """
    rest = url.partition(":")[2]
    host, path = "", rest
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        path = slash + path
    if host not in ("", "localhost") or not path.startswith("/"):
        raise UsageError(
            f"{url!r} names no directory of this machine: write file:///PATH, with three slashes, or the path"
        )
    return unquote(path)


def _refuse_other_names(root: str, several: Sequence[str]) -> None:
    """Refuse names that a shell or another program should have resolved.

    Raises:
        UsageError: with the correct form.
    """
    if os.path.isdir(root):
        return
    for part in root.split(","):
        if _HOME.match(part):
            raise UsageError(f"{part!r}: ~ is resolved by shells alone: write {os.path.expanduser(part)}, or ./{part}")
        if "://" not in part and (shortened := _SHORT_URL.match(part)):
            protocol, rest = shortened.groups()
            raise UsageError(
                f"{part!r} is no URL: write {protocol.lower()}://{rest}, as text (a path object loses a slash); a "
                f"directory of that very name: ./{part}"
            )
    for each in several:
        if each.startswith("file:"):
            _local_path(each)


def split_roots(path: str) -> list[str]:
    """Split comma-separated roots, each of which begins like a URL or path."""
    return re.split(r",(?=[a-z0-9]+://|file:|/|\./|\.\./)", path)


def first_that_answers(storage: Storage) -> Storage:
    """First root that exists, of those named together.

    Raises:
        StorageError: none answers.
    """
    return _first(storage.others, storage.peer)


def _first(roots: Sequence[str], opened: Callable[[str], Storage]) -> Storage:
    failures = []
    for root in roots:
        try:
            storage = opened(root)
            if storage.exists(_MARKER):
                storage.others = tuple(roots)
                return storage
            failures.append(f"{root}: there is no commit log")
        except OSError as error:
            failures.append(f"{root}: {error}")
    raise StorageError(f"none of {len(roots)} roots answers: {'; '.join(failures)}")


def _refuse_addresses(root: str) -> None:
    """Refuse a broker address, unless it is a directory."""
    if _BROKERS.fullmatch(root) and not os.path.isdir(root):
        raise UsageError(
            f"{root!r} is the address of a Kafka broker, and here is none: name the directory of the commit log, for "
            f"example /data/commitlog (a directory of that very name: ./{root})"
        )
