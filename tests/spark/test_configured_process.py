"""`configure_spark` in a process of its own, as a user runs it: a Python not on PATH, and settings of theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from pyspark_commitlog.spark.session.configure import CHECKPOINTS, LOCAL_CHECKPOINTS
from tests.support.records import append, batch_of

JOB = """
import json, sys
from pyspark.sql import SparkSession
from pyspark_commitlog import configure_spark

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "1234")
spark = configure_spark(configure_spark(builder)).getOrCreate()
again = configure_spark(SparkSession.builder).getOrCreate()
rows = again.read.format("commitlog").option("subscribe", "t").load(sys.argv[1]).collect()
names = ("spark.sql.execution.arrow.maxRecordsPerBatch", "spark.python.unix.domain.socket.enabled", sys.argv[2])
print(json.dumps([len(rows), [spark.sparkContext.getConf().get(name) for name in names]]))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose python3 does not know the package, and that names no other."""
    bin_dir, conf = tmp_path / "bin", tmp_path / "conf"
    bin_dir.mkdir()
    conf.mkdir()
    (bin_dir / "python3").write_text("#!/bin/sh\nexit 1\n")
    (bin_dir / "python3").chmod(0o755)
    (conf / "spark-defaults.conf").write_text("spark.python.unix.domain.socket.enabled=false\n")
    left_out = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "HADOOP_CONF_DIR")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | {"PATH": f"{bin_dir}:{os.environ['PATH']}", "SPARK_CONF_DIR": str(conf)}


@pytest.mark.nightly
def test_a_job_finds_this_python_and_keeps_what_its_user_set(
    environment: dict[str, str], log: CommitLog, root: str
) -> None:
    log.create_topic("t")
    append(log.root.topic("t"), batch_of([b"a", b"b", b"c"]))
    done = subprocess.run(
        [sys.executable, "-c", JOB, root, CHECKPOINTS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [3, ["1234", "false", LOCAL_CHECKPOINTS]]
