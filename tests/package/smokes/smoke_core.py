"""What needs no extra: each module is imported, a topic written and read; what needs an extra says which."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable

import pyspark_commitlog
from pyspark_commitlog import CommitLog, Consumer, Producer, metrics
from pyspark_commitlog.errors import CommitLogError

#: What only extras bring.
OPTIONAL = {"prometheus_client", "pytest", "rich", "starlette", "typer", "uvicorn"}


def refusal(use: Callable[[], object]) -> str:
    """Return what a call says that needs an extra."""
    try:
        use()
    except CommitLogError as error:
        return str(error)
    return "nothing is missing"


if __name__ == "__main__":
    assert pyspark_commitlog.__file__.startswith(sys.prefix), pyspark_commitlog.__file__
    missing = set()
    for module in pkgutil.walk_packages(pyspark_commitlog.__path__, "pyspark_commitlog.", onerror=lambda name: None):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing.add(error.name)
    assert missing <= OPTIONAL, missing
    with Producer("log") as producer:
        CommitLog("log").create_topic("clicks", 2)
        producer.send("clicks", b"value", key=b"key").result()
    with Consumer("log", "clicks", auto_offset_reset="earliest") as consumer:
        assert [record.value for record in consumer.poll(10)] == [b"value"]
    topic = CommitLog("log").topic("clicks")
    assert topic.to_arrow().num_rows == 1
    uses = {
        "s3": lambda: CommitLog("s3://bucket/log"), "gcs": lambda: CommitLog("gs://bucket/log"),
        "azure": lambda: CommitLog("az://container/log"), "hdfs": lambda: CommitLog("webhdfs://host:1/log"),
        "metrics": metrics.register, "pandas": topic.to_pandas, "polars": topic.scan,
    }  # fmt: skip
    for extra, use in uses.items():
        assert f"pyspark-commitlog[{extra}]" in refusal(use), (extra, refusal(use))
    command = os.path.join(os.path.dirname(sys.executable), "commitlog")
    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    assert "pip install 'pyspark-commitlog[cli]'" in done.stderr, done
    print("core")
