"""`commitlog --storage-option`: every verb takes URLs, and no secret stands in a command's history."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.cli.common.storage_options import parse_storage_options
from pyspark_commitlog.errors import UsageError
from tests.object_stores.servers import ACCESS_KEY, REGION, SECRET_KEY, Bucket
from tests.support.buckets import run_on
from tests.support.commands import cat
from tests.support.records import append, batch_of


def parsed(*pairs: str) -> dict[str, object]:
    return parse_storage_options(pairs, {"SECRET": "of-env\n"}.get, {"f": "of-file\n"}.__getitem__)


def test_a_value_is_given_or_comes_from_the_environment_or_a_file() -> None:
    assert parsed("endpoint_url=http://h:1/a=b", "secret=env:SECRET", "token=@f") == {
        "endpoint_url": "http://h:1/a=b", "secret": "of-env", "token": "of-file",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["secret", "token", "account_key", "aws_secret_access_key", "connection_string", "sas_token"]
)
def test_a_secret_in_plain_sight_is_refused_without_its_value(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}=env:VARIABLE or {name}=@FILE") as raised:
        parsed(f"{name}=s3cr3t")
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize(("pair", "why"), [("key", "takes name=value"), ("key=env:NONE", "has no NONE")])
def test_what_says_nothing_is_refused(pair: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parsed(pair)


@pytest.mark.slow
def test_every_verb_takes_a_url(moto_bucket: Bucket, tmp_path: Path) -> None:
    url = f"{moto_bucket.url}/{tmp_path.name}/root"
    (tmp_path / "secret").write_text(f"{SECRET_KEY}\n")

    run = partial(run_on, moto_bucket, tmp_path / "secret")

    run("topics", "create", url, "t", "-p", "2")
    assert run("topics", "list", url) == ["t"]
    run("produce", url, "t", given=b"a\nb\nc\n")
    assert sorted(run("cat", url, "t", "-e")) == ["a", "b", "c"]
    assert run("cat", url, "t", "-e", "-G", "g", "-c", "1")
    assert run("groups", "list", url) == ["g"]
    assert len(run("offsets", url, "t", "--time", "latest")) == 2
    run("delete-records", url, "t", "--offset", "0:0")
    run("access", "allow", url, "*", "admin", "*")
    run("access", "clear", url)
    run("maintain", url, "--once")
    assert any("no fault" in line for line in run("verify", url))
    assert run("dump", f"{url}/topics/t/journal/{1:020}.json")
    assert [line.split()[0] for line in run("probe", url)] == ["ok", "ok", "NO", "NO", "ok", "ok"]
    run("topics", "delete", url, "t")
    assert run("topics", "list", url) == []
    assert run("topics", "list", f"{moto_bucket.url}/none", code=1) == []


@pytest.mark.slow
def test_what_was_written_in_python_is_read_by_a_command(moto_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials come from the environment where no option gives them."""
    url = f"{moto_bucket.url}/other"
    log = CommitLog(url, moto_bucket.options)
    log.create_topic("t")
    append(log.root.topic("t"), batch_of([b"a"]))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_bucket.options["endpoint_url"])
    assert cat(url, "t", "-e") == b"a\n"
