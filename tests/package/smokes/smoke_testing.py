"""The plugin is in every pytest of the environment, and a storage passes the contract's first tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
from pyspark_commitlog.testing.jobs import assert_topic
from pyspark_commitlog.testing.storage_contract import ObjectContract, StorageContract


def test_a_topic(commitlog_topic):
    assert_topic(commitlog_topic("clicks", ["home"]), ["home"])
"""

if __name__ == "__main__":
    Path("test_clicks.py").write_text(TESTS)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "test_clicks.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout, done.stdout
    print("testing")
