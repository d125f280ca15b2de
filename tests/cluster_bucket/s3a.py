"""Hadoop's S3A, by which Spark itself reads and writes a bucket: its jars, and what Spark has to know of a server."""

from __future__ import annotations

from pathlib import Path

from tests.object_stores.servers import Bucket

#: Names the jars; Maven fetches them.
POM = Path(__file__).parent / "pom.xml"


def spark_conf(jars: Path, bucket: Bucket) -> dict[str, str]:
    """Return Spark's settings for a server that is not Amazon's. Credentials come from the environment."""
    return {
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.executor.extraClassPath": f"{jars}/*",
        "spark.hadoop.fs.s3a.endpoint": bucket.options["endpoint_url"],
        "spark.hadoop.fs.s3a.endpoint.region": bucket.options["region_name"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def credentials(bucket: Bucket) -> dict[str, str]:
    """Return the environment in which S3A and the log's own client find a server and its credentials."""
    return {
        "AWS_ENDPOINT_URL": bucket.options["endpoint_url"],
        "AWS_ACCESS_KEY_ID": bucket.options["key"],
        "AWS_SECRET_ACCESS_KEY": bucket.options["secret"],
        "AWS_REGION": bucket.options["region_name"],
    }
