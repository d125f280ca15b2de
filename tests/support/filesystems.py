"""Filesystems for fsspec that keep the door's contract, on a directory, and some that break one part of it each."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from pathlib import Path
from typing import Any, ClassVar

from fsspec import AbstractFileSystem, register_implementation

from pyspark_commitlog.storage.fsspec.fsspec_store import FsspecStorage


class Shelf(AbstractFileSystem):  # type: ignore[misc]
    """Files of a directory that are created exclusively and appear whole; each has an ETag of its own, and a time."""

    protocol = "shelf"

    def __init__(self, color: str = "", switch: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.color, self.switch = color, switch

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        name = self._strip_protocol(path)
        while True:
            os.makedirs(os.path.dirname(name), exist_ok=True)
            temporary = f"{os.path.dirname(name)}/.tmp-{uuid.uuid4()}"
            try:
                Path(temporary).write_bytes(value)
                (os.link if mode == "create" else os.replace)(temporary, name)
                return
            except FileNotFoundError:  # another has just removed the directory, which was empty
                continue
            finally:
                Path(temporary).unlink(missing_ok=True)

    def put_file(self, lpath: str, rpath: str, *args: Any, **kwargs: Any) -> None:
        self.pipe_file(rpath, Path(lpath).read_bytes())

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        try:
            stat = os.stat(name)
        except NotADirectoryError:
            raise FileNotFoundError(name) from None
        if os.path.isdir(name):
            return {"name": name, "size": 0, "type": "directory"}
        return {"name": name, "size": stat.st_size, "type": "file", **self.details(name, stat)}

    def details(self, name: str, stat: os.stat_result) -> dict[str, Any]:
        """Return what is shown of a file beside name and size."""
        return {"ETag": f"{stat.st_ino}-{stat.st_mtime_ns}", "mtime": stat.st_mtime}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        name = self._strip_protocol(path)
        names = [f"{name}/{one}" for one in os.listdir(name)] if os.path.isdir(name) else [self.info(name)["name"]]
        return [self.info(one) for one in names] if detail else names

    def find(self, path: str, *args: Any, **kwargs: Any) -> list[str]:
        return [f"{home}/{name}" for home, _, names in os.walk(self._strip_protocol(path)) for name in names]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        return Path(self._strip_protocol(path)).read_bytes()[start:end]

    def rm_file(self, path: str) -> None:
        name = Path(self._strip_protocol(path))
        name.unlink()
        for above in name.parents:  # a directory is there while something lies in it
            try:
                above.rmdir()
            except OSError:
                break


class Looking(Shelf):
    """Looks whether a name is taken and writes then."""

    protocol = "shelf-looking"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        time.sleep(0.005)
        super().pipe_file(path, value)


class Deaf(Shelf):
    """Takes a mode, and heeds none."""

    protocol = "shelf-deaf"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        super().pipe_file(path, value)


class Half(Shelf):
    """Creates exclusively, as `open("xb")` does, and fills then."""

    protocol = "shelf-half"

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        name = self._strip_protocol(path)
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "xb" if mode == "create" else "wb") as file:
            file.write(value[: len(value) // 2])
            file.flush()
            time.sleep(0.02)
            file.write(value[len(value) // 2 :])


class Same(Shelf):
    """Shows of a file what depends on its content, and the day."""

    protocol = "shelf-same"

    def details(self, name: str, stat: os.stat_result) -> dict[str, Any]:
        return {"ETag": hashlib.md5(Path(name).read_bytes()).hexdigest(), "mtime": stat.st_mtime // 86400 * 86400}


class Restless(Shelf):
    """Shows another ETag at each look."""

    protocol = "shelf-restless"

    def details(self, name: str, stat: os.stat_result) -> dict[str, Any]:
        return {"ETag": str(uuid.uuid4()), "mtime": stat.st_mtime}


class Bare(Shelf):
    """Shows of a file when it was written, as SFTP does, and no more."""

    protocol = "shelf-bare"

    def details(self, name: str, stat: os.stat_result) -> dict[str, Any]:
        return {"mtime": stat.st_mtime}


class Plain(Shelf):
    """Has fsspec's own way to put."""

    protocol = "shelf-plain"
    pipe_file = AbstractFileSystem.pipe_file


class Modeless(Shelf):
    """Puts in a way of its own, which knows no modes."""

    protocol = "shelf-modeless"

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None:
        super().pipe_file(path, value)


class Failing(Shelf):
    """Raises what `errors` hold, one for a call, before (or, of a put, after) it was done."""

    protocol = "shelf-failing"
    errors: ClassVar[list[Exception]] = []
    after = False

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if self.after:
            super().pipe_file(path, value, mode)
        self._fail()
        super().pipe_file(path, value, mode)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        self._fail()
        return super().info(path)  # type: ignore[no-any-return]


for _kind in (Shelf, Looking, Deaf, Half, Same, Restless, Bare, Plain, Modeless, Failing):
    register_implementation(_kind.protocol, _kind)


def open_shelf(url: str, options: dict[str, object] | None = None) -> FsspecStorage:
    """Open a root on one of these: also in a process that has not imported them yet."""
    return FsspecStorage(url, options)
