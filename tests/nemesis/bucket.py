"""A root's place in a bucket, of an S3 server that can be taken away, emptied, set back and damaged, as `disks.Disk` can.

The server is a process of its own (`s3_server`) that fails as marks say.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from tests.nemesis.disks import Disk
from tests.object_stores.servers import Moto, free_port

_BUCKET, _PREFIX = "nemesis", "log"


class _Server(Moto):
    """moto's server with failures; `back` is the same server without."""

    def __init__(self, home: Path, marks: Path, name: str) -> None:
        super().__init__(home)
        self.front, self.port = self.port, free_port()
        self._marks, self._name = marks, name

    def command(self) -> list[str]:
        """See `Server.command`."""
        ports = [str(self.front), str(self.port)]
        return [sys.executable, "-m", "tests.nemesis.s3_server", str(self._marks), self._name, *ports]


class Bucket:
    """What stands in a disk's place: the prefix of a bucket; see `Disk`.

    Args:
        home: a directory, for all disks; marks of what fails are in it.
        name: of the root.
    """

    faults = frozenset({*Disk.faults, "spoiled"})

    def __init__(self, home: Path, name: str) -> None:
        self.name, self._home = name, home
        self.url = f"s3://{_BUCKET}/{_PREFIX}/{name}"
        self._server = _Server(home / "servers" / name, home, name)
        self._copied: dict[str, bytes] | None = None
        self._start()

    def _start(self) -> None:
        self._server.start()
        self._server.create(_BUCKET)

    def _back(self) -> Any:
        """Return a client that nothing fails for."""
        from obstore.store import from_url

        return from_url(self.url, config=self._options(self._server.port), client_options={"allow_http": True})

    def _options(self, port: int) -> dict[str, Any]:
        bucket = self._server.bucket(_BUCKET, f"http://127.0.0.1:{port}")
        return {
            "access_key_id": bucket.options["key"], "secret_access_key": bucket.options["secret"],
            "endpoint": bucket.options["endpoint_url"], "region": bucket.options["region_name"],
        }  # fmt: skip

    @property
    def options(self) -> dict[str, str]:
        """The `storage_options` of clients."""
        return self._server.bucket(_BUCKET, f"http://127.0.0.1:{self._server.front}").options

    def leave(self) -> None:
        """End the server."""
        self._server.stop()

    # --- what fails ----------------------------------------------------------------------------------

    def begin(self, what: str) -> bool:
        """See `Disk.begin`: the server goes by a mark."""
        self._mark(what).touch()
        return True

    def end(self, what: str) -> None:
        """See `Disk.end`."""
        self._mark(what).unlink()

    def _mark(self, what: str) -> Path:
        return self._home / f"{what}-{self.name}"

    def take_away(self) -> None:
        """Have nobody listen; who waits for a reply gets none."""
        self.begin("away")

    def give_back(self) -> None:
        """Serve again, as it is."""
        self.end("away")

    def strays(self) -> list[str]:
        """Return nothing: nobody writes below a bucket."""
        return []

    # --- what it holds -------------------------------------------------------------------------------

    def _all(self) -> list[str]:
        import obstore

        return sorted(one["path"] for page in obstore.list(self._back()) for one in page)

    def copy(self) -> None:
        """Keep a copy of what is in it; nothing may change meanwhile."""
        self._copied = self._content()

    def _content(self) -> dict[str, bytes]:
        back = self._back()
        return {path: bytes(back.get(path).bytes()) for path in self._all()}

    def set_back(self) -> bool:
        """Have it hold what was copied, put anew; False where there is no copy. It is to be away."""
        if self._copied is None:
            return False
        copied = self._copied
        self.clear()
        back = self._back()
        for path, data in copied.items():
            back.put(path, data)
        self._copied = copied
        return True

    def clear(self) -> bool:
        """Kill the server, and have another one in its place. It is to be away."""
        self._server.stop()
        self._start()
        self._copied = None
        return True

    def files(self, *patterns: str) -> list[str]:
        """Return the objects whose names, from the root on, are of one of these patterns."""
        return [path for path in self._all() if any(PurePosixPath(path).match(pattern) for pattern in patterns)]

    def newest(self, topic: str) -> int:
        """Return the number of the newest entry of a topic in it; 0 where there is none."""
        stems = [PurePosixPath(path).stem for path in self.files(f"topics/{topic}/journal/*.json")]
        return max((int(stem) for stem in stems if stem.isdigit()), default=0)

    def flip(self, file: str, chance: random.Random) -> None:
        """Have an object in the place of another, of which a bit is another."""
        back = self._back()
        data = bytearray(back.get(file).bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        back.put(file, bytes(data))

    def save(self, target: Path) -> None:
        """Copy what is in it."""
        for path, data in self._content().items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(data)
