"""A bucket for tests of all that takes a URL: in moto, which comes with the extra `dev`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.object_stores.servers import ACCESS_KEY, REGION, SECRET_KEY, Bucket, Moto
from tests.support.commands import run_bytes


@contextmanager
def bucket_in_moto(home: Path) -> Iterator[Bucket]:
    """Start a server, whose files are in `home`, and make a bucket; the server ends in any case."""
    server = Moto(home)
    try:
        server.start()
        server.create("of-tests")
        yield server.bucket("of-tests")
    finally:
        server.stop()


def run_on(bucket: Bucket, secret: Path, *words: str, given: bytes = b"", code: int = 0) -> list[str]:
    """Run `commitlog` with the storage options of a bucket; return the lines that it prints, none with the secret.

    Args:
        bucket: where the URLs are that `words` name.
        secret: the file that holds its secret key.
        words: the command's.
        given: its standard input.
        code: what it must end with.
    """
    options = {
        "key": ACCESS_KEY, "secret": f"@{secret}", "region_name": REGION,
        "endpoint_url": bucket.options["endpoint_url"],
    }  # fmt: skip
    pairs = [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]
    done = run_bytes(*pairs, *words, given=given)
    assert done.returncode == code, done.stderr.decode()
    assert SECRET_KEY.encode() not in done.stdout + done.stderr
    return done.stdout.decode().splitlines()
