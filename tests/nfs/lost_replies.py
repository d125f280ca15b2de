"""A proxy in front of an NFS server that loses replies of links: the link is there, and the client asks for it again.

By NFS 3, whose requests are told apart by a number of the client's (xid) alone. The request that comes again gets another
one on its way, as if the server had forgotten that it ever answered: after a restart, or where its cache of replies was
too small. So the answer is EEXIST, for the caller's own link.
"""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from contextlib import suppress

_NFS, _LINK = 100003, 15
_LAST = 0x8000_0000
SERVER = ("10.9.0.1", 2049)


class LosingProxy:
    """Listens on loopback; of each two links it loses the reply of one, while `losing`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.losing = False
        self.lost = self._links = 0
        self._to_lose: set[int] = set()
        self._asked_again: set[int] = set()
        self._renamed: dict[int, int] = {}
        self._fresh = itertools.count(0x7F00_0000)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            with suppress(OSError):
                client, _ = self._listener.accept()
                server = socket.create_connection(SERVER)
                for act, source, sink in ((self._ask, client, server), (self._answer, server, client)):
                    threading.Thread(target=self._pump, args=(act, source, sink), daemon=True).start()

    def _pump(self, act: object, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError, EOFError):
            while True:
                passed = act(_record(source))  # type: ignore[operator]
                if passed is None:
                    break
                sink.sendall(struct.pack(">I", _LAST | len(passed)) + passed)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _ask(self, record: bytes) -> bytes:
        xid, _, _, program, _, procedure = struct.unpack_from(">6I", record)
        if (program, procedure) != (_NFS, _LINK):
            return record
        if xid in self._asked_again:
            fresh = next(self._fresh)
            self._renamed[fresh] = xid
            return struct.pack(">I", fresh) + record[4:]
        self._links += 1
        if self.losing and self._links % 2:
            self._to_lose.add(xid)
        return record

    def _answer(self, record: bytes) -> bytes | None:
        (xid,) = struct.unpack_from(">I", record)
        if xid in self._to_lose:
            self._to_lose.discard(xid)
            self._asked_again.add(xid)
            self.lost += 1
            return None
        return struct.pack(">I", self._renamed.pop(xid, xid)) + record[4:]


def _record(source: socket.socket) -> bytes:
    """Return the next message, of one or more fragments."""
    parts = []
    while True:
        (head,) = struct.unpack(">I", _exactly(source, 4))
        parts.append(_exactly(source, head & ~_LAST))
        if head & _LAST:
            return b"".join(parts)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
