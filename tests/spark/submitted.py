"""Jobs as their users run them: by spark-submit, and where python3 is another Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from tests.spark.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


def submit(job: str, *arguments: object) -> str:
    """Run a job with spark-submit; return what it printed."""
    spark_submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    conf = ["--properties-file", str(REPOSITORY / "spark-conf" / "spark-defaults.conf"), "--master", "local[2]"]
    done = subprocess.run(
        [spark_submit, *conf, EXAMPLES / job, *map(str, arguments)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def without_the_venv(tmp_path: Path) -> dict[str, str]:
    """Return an environment that names this Python nowhere; python3 in PATH is another one, without this package."""
    (tmp_path / "bin").mkdir()
    for name in ("python", "python3"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho this Python knows no commitlog >&2\nexit 1\n")
        (tmp_path / "bin" / name).chmod(0o755)
    unset = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV"}
    env = {name: value for name, value in os.environ.items() if name not in unset}
    path = [part for part in env["PATH"].split(os.pathsep) if not (Path(part) / "spark-submit").exists()]
    return env | {"PATH": os.pathsep.join([str(tmp_path / "bin"), *path])}
