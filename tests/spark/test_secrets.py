"""A job on a bucket: it writes, reads and streams there, and nothing that Spark shows has its credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_commitlog import CommitLog
from tests.object_stores.servers import ACCESS_KEY, REGION, SECRET_KEY, Bucket
from tests.spark.jobs import read, run, stream, values, write


@pytest.fixture
def given(moto_bucket: Bucket) -> dict[str, Any]:
    """The options of a job."""
    endpoint = moto_bucket.options["endpoint_url"]
    return {"storage.key": ACCESS_KEY, "storage.secret": SECRET_KEY, "storage.endpoint_url": endpoint,
            "storage.region_name": REGION}  # fmt: skip


def shown(spark: SparkSession) -> str:
    """Return what Spark's UI shows of all that ran: plans, and the details of each execution."""
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    return "\n".join(
        executions.apply(n).physicalPlanDescription()
        + executions.apply(n).details()
        + executions.apply(n).description()
        for n in range(executions.size())
    )


@pytest.mark.nightly
def test_a_job_on_a_bucket_shows_no_credentials(
    spark: SparkSession, moto_bucket: Bucket, given: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"{moto_bucket.url}/root"
    log = CommitLog(url, moto_bucket.options)
    for name in ("t", "copy"):
        log.create_topic(name, 2)
    write(spark.sql("SELECT CAST(id AS STRING) AS key, CAST(id AS STRING) AS value FROM range(100)"), url, "t", **given)
    found = read(spark, url, "t", **given)
    assert sorted(values(found), key=int) == [str(n) for n in range(100)]
    query = stream(spark, url, "t", **given).select("key", "value")
    run(query, url, "copy", tmp_path / "checkpoint", **given)
    assert len(values(read(spark, url, "copy", **given))) == 100

    found.explain("extended")
    found.explain("formatted")
    plans = found._jdf.queryExecution().toString() + shown(spark)
    checkpoint = b"".join(path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    out, err = capfd.readouterr()
    assert "commitlog" in out + plans
    for secret in (SECRET_KEY, ACCESS_KEY):
        assert secret not in out + err + plans
        assert secret.encode() not in checkpoint


def test_an_error_on_a_bucket_shows_no_credentials(
    spark: SparkSession, moto_bucket: Bucket, given: dict[str, Any]
) -> None:
    for url, options in (
        (f"{moto_bucket.url}/none", given),
        ("s3://there-is-none/x", given),
        (moto_bucket.url, {**given, "storage.sekret": SECRET_KEY}),
    ):
        with pytest.raises(PySparkException) as raised:
            read(spark, url, "t", **options).collect()
        assert SECRET_KEY not in str(raised.value)
