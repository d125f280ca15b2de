"""HDFS in memory, as far as its HTTP interface goes: a name node and a data node in one server on loopback.

Its answers are those of Hadoop 3.5.0 to the same requests; `make test-hdfs` runs the same tests on Hadoop's own servers.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

_STATUS = {"FileNotFoundException": 404, "StandbyException": 403}


class _RefusedError(Exception):
    """Kind of exception, and message."""


class _File:
    def __init__(self, number: int, data: bytes | None) -> None:
        self.number, self.data, self.modified_ms = number, data, int(time.time() * 1000)


class NameNode:
    """`faults` get (operation, path, "before" or "after") of each request, and may raise `ConnectionError`: no answer.

    `knows_options`: whether a rename heeds its options (HttpFS does not). `shows_numbers`: whether `fileId` is shown.
    """

    def __init__(self) -> None:
        self.files: dict[str, _File] = {"/": _File(1, None)}
        self.faults: list[Callable[[str, str, str], None]] = []
        self.asked: list[tuple[str, str]] = []
        self.knows_options = self.shows_numbers = True
        self._numbers, self._lock = count(2), threading.RLock()
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def handle_any(self) -> None:
                node.handle(self)

            do_GET = do_PUT = do_DELETE = handle_any  # noqa: N815 the library's names

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"webhdfs://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()

    def handle(self, request: Any) -> None:
        """Answer a request; one with bytes to store is sent on to the data node first, which is here too."""
        parts = urlsplit(request.path)
        options = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path, operation = parts.path.removeprefix("/webhdfs/v1").rstrip("/") or "/", options["op"]
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if operation in ("CREATE", "OPEN") and "datanode" not in options:
            request.send_response(307)
            request.send_header("Location", f"http://{request.headers['Host']}{request.path}&datanode=true")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        self.asked.append((operation, path))
        try:
            self._fault(operation, path, "before")
            with self._lock:
                status, answer = getattr(self, f"_{operation.lower()}")(path, options, body)
            self._fault(operation, path, "after")
        except _RefusedError as error:
            kind, text = error.args
            said = {"exception": kind, "javaClassName": f"java.{kind}", "message": f"{text}\n\tat org.apache.hadoop"}
            status, answer = _STATUS.get(kind, 403), json.dumps({"RemoteException": said}).encode()
        except ConnectionError:
            request.close_connection = True
            return
        request.send_response(status)
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)

    def _fault(self, operation: str, path: str, moment: str) -> None:
        for fault in list(self.faults):
            fault(operation, path, moment)

    # --- operations ----------------------------------------------------------------------------------------

    def _get(self, path: str) -> _File:
        for number in range(1, path.count("/")):
            above = self.files.get("/".join(path.split("/")[: number + 1]))
            if above is not None and above.data is not None:
                raise _RefusedError("AccessControlException", f"{path} (is not a directory)")
        if path not in self.files:
            raise _RefusedError("FileNotFoundException", f"File does not exist: {path}")
        return self.files[path]

    def _parent(self, path: str) -> str:
        return path.rpartition("/")[0] or "/"

    def _make(self, path: str) -> None:
        if path not in self.files:
            self._make(self._parent(path))
            self.files[path] = _File(next(self._numbers), None)
        elif self.files[path].data is not None:
            raise _RefusedError("ParentNotDirectoryException", f"{path} (is not a directory)")

    def _mkdirs(self, path: str, options: dict[str, str], body: bytes) -> tuple[int, bytes]:
        self._make(path)
        return 200, b'{"boolean":true}'

    def _create(self, path: str, options: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if path in self.files and options.get("overwrite") != "true":
            raise _RefusedError("FileAlreadyExistsException", f"{path} for client 127.0.0.1 already exists")
        if options.get("createparent") == "false" and self._parent(path) not in self.files:
            raise _RefusedError("FileNotFoundException", f"Parent directory doesn't exist: {self._parent(path)}")
        self._make(self._parent(path))
        self.files[path] = _File(next(self._numbers), body)
        return 201, b""

    def _rename(self, path: str, options: dict[str, str], body: bytes) -> tuple[int, bytes]:
        to, option = options["destination"], options.get("renameoptions")
        taken = to in self.files and not (option == "OVERWRITE" and self.knows_options)
        if not self.knows_options or option is None:
            if not taken and path in self.files and self._parent(to) in self.files:
                self.files[to] = self.files.pop(path)
                return 200, b'{"boolean": true}'
            return 200, b'{"boolean": false}'
        if path not in self.files:
            raise _RefusedError("FileNotFoundException", f"rename source {path} is not found.")
        if taken:
            raise _RefusedError("FileAlreadyExistsException", f"rename destination {to} already exists")
        if self._parent(to) not in self.files:
            raise _RefusedError("FileNotFoundException", f"rename destination parent {to} not found.")
        self.files[to] = self.files.pop(path)
        return 200, b""

    def _shown(self, name: str, file: _File) -> dict[str, Any]:
        kind = "DIRECTORY" if file.data is None else "FILE"
        number = {"fileId": file.number} if self.shows_numbers else {}
        shown = {"length": len(file.data or b""), "modificationTime": file.modified_ms, "type": kind}
        return {"pathSuffix": name, **shown, **number}

    def _getfilestatus(self, path: str, options: dict[str, str], body: bytes) -> tuple[int, bytes]:
        return 200, json.dumps({"FileStatus": self._shown("", self._get(path))}).encode()

    def _liststatus(self, path: str, options: dict[str, str], body: bytes) -> tuple[int, bytes]:
        file = self._get(path)
        below = [one for one in self.files if one != "/" and self._parent(one) == path]
        shown = [self._shown(one.rpartition("/")[2], self.files[one]) for one in below]
        listed = shown if file.data is None else [self._shown("", file)]
        return 200, json.dumps({"FileStatuses": {"FileStatus": listed}}).encode()

    def _open(self, path: str, options: dict[str, str], body: bytes) -> tuple[int, bytes]:
        data, start = self._get(path).data or b"", int(options.get("offset", 0))
        if start and start >= len(data):
            raise _RefusedError("IOException", f"Offset={start} out of the range [0, {len(data)}); OPEN, path={path}")
        return 200, data[start : start + int(options.get("length", len(data)))]

    def _delete(self, path: str, options: dict[str, str], body: bytes) -> tuple[int, bytes]:
        below = [one for one in self.files if one.startswith(f"{path}/")]
        if below and options.get("recursive") != "true":
            raise _RefusedError("PathIsNotEmptyDirectoryException", f"`{path} is non empty': Directory is not empty")
        for one in [*below, *([path] if path in self.files else [])]:
            del self.files[one]
        return 200, b'{"boolean":true}'

    def _settimes(self, path: str, options: dict[str, str], body: bytes) -> tuple[int, bytes]:
        self._get(path).modified_ms = int(options["modificationtime"])
        return 200, b""
