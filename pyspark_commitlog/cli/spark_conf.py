"""`commitlog spark-conf`: settings of `configure_spark`, for spark-submit and spark-defaults.conf."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from pyspark_commitlog.cli.common.endings import ended_by_errors, print_lines
from pyspark_commitlog.errors import UnsupportedError
from pyspark_commitlog.spark.session.configure import (
    CHECKPOINTS,
    DRIVER_JAVA,
    EXECUTOR_JAVA,
    JAVA_OPTIONS,
    LOCAL_CHECKPOINTS,
    SETTINGS,
    quick_python,
)

_HEAD = """\
# What configure_spark(SparkSession.builder) sets:
#   commitlog spark-conf > commitlog.conf
#   spark-submit --properties-file commitlog.conf --load-spark-defaults job.py
# On one machine, Spark's Python processes start sooner with (before spark-submit):
#   export PYSPARK_PYTHON="$(commitlog spark-conf --python)" QUICK_PYTHON="$(command -v python)"
"""
_TAIL = f"""\
# For checkpoints on a local disk, where Spark's default starts a process for each rename:
# {CHECKPOINTS} {LOCAL_CHECKPOINTS}
"""


def settings() -> dict[str, str]:
    """Return the settings that are safe for every job."""
    return {**SETTINGS, DRIVER_JAVA: JAVA_OPTIONS, EXECUTOR_JAVA: JAVA_OPTIONS}


def spark_conf(
    submit: Annotated[bool, typer.Option("--submit", help="As arguments: spark-submit $(… --submit) job.py.")] = False,
    python: Annotated[bool, typer.Option("--python", help="Only the path for PYSPARK_PYTHON.")] = False,
) -> None:
    """Print the Spark settings that this package is fast with, as lines of spark-defaults.conf."""
    with ended_by_errors():
        if python:
            path = quick_python()
            if path is None:
                raise UnsupportedError("quick-python is not installed as a program: install the package with pip")
            print_lines([path])
        elif submit:
            typer.echo(" ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in settings().items()))
        else:
            width = max(map(len, settings()))
            lines = (f"{name:<{width}} {value}\n" for name, value in settings().items())
            typer.echo(_HEAD + "".join(lines) + _TAIL, nl=False)
