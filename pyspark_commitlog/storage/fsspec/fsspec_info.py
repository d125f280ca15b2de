"""File metadata of fsspec's filesystems, under whatever key (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pyspark_commitlog.errors import UnsupportedError
from pyspark_commitlog.storage.base import FileInfo
from pyspark_commitlog.storage.fsspec.fsspec_options import INSTEAD

#: Numbers unique to a version of the file.
_VERSIONS = ("VersionId", "version_id", "versionId", "generation")
#: Derived from the content.
_TAGS = ("ETag", "etag", "e_tag")
_TIMES = ("LastModified", "last_modified", "modified", "mtime", "updated", "modificationTime", "created")
#: Larger numbers are ms, not seconds: as seconds the year is 5138.
_MILLISECONDS_FROM = 10**11


def file_info(found: Mapping[str, Any], url: str) -> FileInfo:
    """Return a file's `FileInfo` from `AbstractFileSystem.info`.

    Refuse metadata that does not distinguish files put successively at one path (rule O7).
    """
    modified_ms = _first_time(found)
    version, tag = _first(found, _VERSIONS), _first(found, _TAGS)
    if modified_ms is None or not (version or tag):
        raise UnsupportedError(
            f"{url} can't hold a commit log: two files that were put at one path one after the other can't be "
            f"distinguished by what its filesystem says of one ({', '.join(sorted(found))}): that takes a version or "
            f"an ETag, and a time. Instead {INSTEAD}"
        )
    return FileInfo(int(found["size"]), modified_ms, version or f"{tag}@{modified_ms}")


def _first(found: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((str(found[name]) for name in names if found.get(name) not in (None, "", "null")), "")


def _first_time(found: Mapping[str, Any]) -> int | None:
    return next((time for name in _TIMES if (time := _milliseconds(found.get(name))) is not None), None)


def _milliseconds(value: object) -> int | None:
    if isinstance(value, bool) or not value:
        return None
    if isinstance(value, int | float):
        return int(value if value > _MILLISECONDS_FROM else value * 1000)
    moment = _parsed(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _parsed(text: str) -> datetime | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            return parse(text)
        except ValueError:
            continue
    return None
