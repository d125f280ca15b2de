"""A signed request to a server of S3, without a client that retries."""

from __future__ import annotations

import http.client

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.object_stores.servers import ACCESS_KEY, HOST, REGION, SECRET_KEY


def ask(
    port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """Return status and body of a signed request; raises what a client of HTTP raises."""
    signed = AWSRequest(method, f"http://{HOST}:{port}{path}", {"Host": f"{HOST}:{port}", **(headers or {})}, body)
    S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", REGION).add_auth(signed)
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request(method, path, body, dict(signed.headers.items()))
        got = connection.getresponse()
        return got.status, got.read()
    finally:
        connection.close()
