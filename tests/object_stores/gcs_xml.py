"""The uploads of Google's XML API, in front of fake-gcs-server, which has the JSON API's only.

Clients write by the XML API: `PUT /bucket/name`, with `x-goog-if-generation-match: 0` for put-if-absent, and multipart
uploads. Here each becomes one request of the JSON API: what is put, whether it is there already and its generation are
fake-gcs-server's to say. All else is handed on as it is.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from urllib.parse import quote, unquote, urlsplit

from tests.object_stores.wire import LoopbackServer, Reply, Request, Upstream


class GcsXmlGateway(LoopbackServer):
    """Speaks the XML API; parts of uploads that are under way lie in memory."""

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self._lock = threading.Lock()
        self._uploads: dict[str, dict[int, bytes]] = {}

    def reply(self, request: Request, upstream: Upstream) -> Reply:
        """See `LoopbackServer.reply`."""
        request = self._at_home(request)
        bucket, _, name = unquote(urlsplit(request.target).path).lstrip("/").partition("/")
        query = request.query
        if request.method == "POST" and "uploads" in query:
            return self._begin(bucket, name)
        if "uploadId" in query:
            return self._part(request, bucket, name, query, upstream)
        if request.method == "PUT" and name:
            return self._put(bucket, name, request.body, request.header("x-goog-if-generation-match"), upstream)
        if request.verb == "LIST":
            return upstream.ask(Request("GET", f"/{bucket}?{urlsplit(request.target).query}", request.headers, b""))
        return upstream.ask(request)

    def _at_home(self, request: Request) -> Request:
        """Return the request as fake-gcs-server takes it: it routes by the `Host` that it was started with."""
        headers = [(name, value) for name, value in request.headers if name.lower() != "host"]
        return Request(
            request.method, request.target, [*headers, ("Host", f"127.0.0.1:{self.upstream_port}")], request.body
        )

    def _put(self, bucket: str, name: str, body: bytes, generation: str, upstream: Upstream) -> Reply:
        match = f"&ifGenerationMatch={generation}" if generation else ""
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}{match}"
        headers = [("Host", f"127.0.0.1:{self.upstream_port}"), ("Content-Type", "application/octet-stream")]
        got = upstream.ask(Request("POST", target, headers, body))
        if got.status != 200:
            return Reply(got.status, [("Content-Type", "application/xml")], b"<Error><Code>refused</Code></Error>")
        stored = json.loads(got.body)
        return Reply(200, [("ETag", f'"{stored["etag"]}"'), ("x-goog-generation", stored["generation"])])

    def _begin(self, bucket: str, name: str) -> Reply:
        upload = uuid.uuid4().hex
        with self._lock:
            self._uploads[upload] = {}
        fields = f"<Bucket>{bucket}</Bucket><Key>{name}</Key><UploadId>{upload}</UploadId>"
        return _xml(f"<InitiateMultipartUploadResult>{fields}</InitiateMultipartUploadResult>")

    def _part(self, request: Request, bucket: str, name: str, query: dict[str, str], upstream: Upstream) -> Reply:
        upload = query["uploadId"]
        if request.method == "PUT":
            number = int(query["partNumber"])
            with self._lock:
                self._uploads[upload][number] = request.body
            return Reply(200, [("ETag", f'"{number}"')])
        with self._lock:
            parts = self._uploads.pop(upload, {})
        if request.method == "DELETE":
            return Reply(204)
        numbers = [int(found) for found in re.findall(rb"<PartNumber>(\d+)</PartNumber>", request.body)]
        put = self._put(bucket, name, b"".join(parts[number] for number in numbers), "", upstream)
        if put.status != 200:
            return put
        fields = f"<Bucket>{bucket}</Bucket><Key>{name}</Key><ETag>{put.header('etag')}</ETag>"
        return _xml(f"<CompleteMultipartUploadResult>{fields}</CompleteMultipartUploadResult>", put.headers)


def _xml(body: str, headers: object = ()) -> Reply:
    more = list(headers) if isinstance(headers, (list, tuple)) else []
    return Reply(200, [("Content-Type", "application/xml"), *more], body.encode())
