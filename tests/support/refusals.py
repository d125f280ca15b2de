"""A system that refuses calls below a directory, as a mount does; for processes that end, or roots that are used once."""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Callable
from typing import Any

from tests.support.syscalls import path_of

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
#: Calls that change names, and those that read them.
_CHANGES = ("mkdir", "link", "rename", "replace", "unlink", "rmdir", "utime")
_LOOKS = ("listdir", "scandir", "stat", "lstat")


def refuse(root: str, code: int, *, reads: bool = False) -> None:
    """Have the system refuse this process to change what lies below a directory, or with `reads` to see it.

    As a mount does: a name that is there, or not there, is told as that first.
    """
    refused = _Refused(root, code)
    opens, files = os.open, builtins.open

    def open_(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & _WRITING or reads:
            refused.check(path_of(path, kwargs.get("dir_fd")))
        return opens(path, flags, *args, **kwargs)

    def file(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if reads or set(mode) & set("wxa+"):
            refused.check(path)
        return files(path, mode, *args, **kwargs)

    os.open = open_  # type: ignore[assignment]
    builtins.open = file  # type: ignore[assignment]
    for name in (*_CHANGES, *(_LOOKS if reads else ())):
        setattr(os, name, refused.before(name))


class _Refused:
    def __init__(self, root: str, code: int) -> None:
        self._root, self._code = root, code

    def check(self, path: object) -> None:
        """Raise where a path lies below the root."""
        try:
            found = os.fspath(path)  # type: ignore[call-overload]
        except TypeError:  # a descriptor
            return
        if str(found).startswith(self._root):
            raise OSError(self._code, os.strerror(self._code), found)

    def before(self, name: str) -> Callable[..., Any]:
        """Return a call that is refused where it would change something."""
        call, exists = getattr(os, name), os.path.lexists

        def checked(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            found = path if isinstance(path, int) else path_of(path, kwargs.get("src_dir_fd", kwargs.get("dir_fd")))
            if name == "unlink" and not exists(found):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if name == "mkdir" and exists(found):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self.check(found)
            return call(path, *args, **kwargs)

        return checked
