"""A streaming job that writes to a bucket is killed, with its driver and JVM, and started again: every record once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from tests.object_stores.conftest import on
from tests.object_stores.servers import Bucket, Versitygw
from tests.spark.killed_job import KilledJob, batches_for, kill_at_random

pytestmark = [pytest.mark.spark, on(Versitygw)]


class BucketJob(KilledJob):
    """The job of `tests/spark/kill_writer.py`, its root in a bucket."""

    def __init__(self, home: Path, bucket: Bucket, batches: int) -> None:
        self.root = Bucket(f"{bucket.url}/log", bucket.options)
        (home / "root.json").write_text(json.dumps({"url": self.root.url, "options": self.root.options}))
        super().__init__(home, batches)

    def opened(self) -> CommitLog:
        """See `KilledJob.opened`."""
        return CommitLog(self.root.url, self.root.options)

    def visible(self) -> int:
        """See `KilledJob.visible`; a look is several requests, and who waits looks again and again."""
        time.sleep(0.05)
        return super().visible()


@pytest.mark.timeout(3000)
def test_a_job_on_s3_that_is_killed_twenty_times_writes_every_record_once(bucket: Bucket, tmp_path: Path) -> None:
    kill_at_random(BucketJob(tmp_path, bucket, batches_for(20)), 20, seed=int(time.time()))
