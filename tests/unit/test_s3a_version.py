"""Documents, example and tests name the S3A that goes with the Hadoop client in PySpark's jars: others fail as they load."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark

REPOSITORY = Path(__file__).parents[2]
NAMED = ("examples/flights_by_day.py", "docs/how-to/cluster-on-a-bucket.md")


def test_the_version_of_s3a_is_that_of_sparks_hadoop_client() -> None:
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    pom = (REPOSITORY / "tests" / "cluster_bucket" / "pom.xml").read_text()
    assert re.findall(r"<artifactId>hadoop-aws</artifactId>\s*<version>(.*)</version>", pom) == [version]
    for name in NAMED:
        assert set(re.findall(r"org\.apache\.hadoop:hadoop-aws:([\w.]+)", (REPOSITORY / name).read_text())) == {version}
