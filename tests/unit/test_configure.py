"""`configure_spark`: all that is safe, nothing that the user set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.spark.session.configure import (
    CHECKPOINTS,
    DRIVER_JAVA,
    EXECUTOR_JAVA,
    LOCAL_CHECKPOINTS,
    SETTINGS,
    UNCHECKED,
    Situation,
    configure_spark,
    of_arguments,
    parsed,
    plan,
)

REPOSITORY = Path(__file__).resolve().parents[2]

NEW = Situation(given={}, environment={}, python="/venv/python", quick_python="/package/quick-python", jvm_runs=False)
QUICK = {"PYSPARK_PYTHON": "/package/quick-python", "QUICK_PYTHON": "/venv/python"}


def test_a_plain_local_job_gets_all_settings_and_this_python() -> None:
    made = plan(NEW)
    assert set(made.settings) == {*SETTINGS, DRIVER_JAVA, EXECUTOR_JAVA, CHECKPOINTS}
    assert made.settings[CHECKPOINTS] == LOCAL_CHECKPOINTS
    assert made.environment == QUICK
    assert made.kept == ()


@pytest.mark.parametrize("name", [*SETTINGS, DRIVER_JAVA, EXECUTOR_JAVA, CHECKPOINTS])
def test_what_the_user_set_stays_and_is_named(name: str) -> None:
    made = plan(replace(NEW, given={name: "mine"}))
    assert name not in made.settings
    assert made.kept == (name,)
    assert str(made).endswith(f"kept yours: {name}")


def test_arrow_s_checks_of_bounds_stay_unless_they_are_given_up() -> None:
    assert UNCHECKED not in plan(NEW).settings[DRIVER_JAVA]
    assert UNCHECKED in plan(NEW, arrow_checks=False).settings[DRIVER_JAVA]


@pytest.mark.parametrize(
    "there",
    [
        replace(NEW, given={"spark.master": "spark://host:7077"}),
        replace(NEW, given={"spark.hadoop.fs.defaultFS": "hdfs://name"}),
        replace(NEW, environment={"HADOOP_CONF_DIR": "/etc/hadoop"}),
    ],
)
def test_checkpoints_that_may_lie_elsewhere_keep_spark_s_own_file_manager(there: Situation) -> None:
    assert CHECKPOINTS not in plan(there).settings


@pytest.mark.parametrize(
    ("there", "environment"),
    [
        (replace(NEW, environment={"PYSPARK_PYTHON": "/other/python"}), {}),
        (replace(NEW, environment={"PYSPARK_PYTHON": "/venv/python"}), QUICK),
        (replace(NEW, given={"spark.pyspark.python": "/other/python"}), {}),
        (replace(NEW, given={"spark.master": "yarn"}), {}),
        (replace(NEW, jvm_runs=True), {}),
        (replace(NEW, quick_python=None), {"PYSPARK_PYTHON": "/venv/python"}),
        (replace(NEW, quick_python=None, environment={"PYSPARK_PYTHON": "/venv/python"}), {}),
    ],
)
def test_spark_s_python_is_this_one_unless_the_user_or_a_cluster_says_otherwise(
    there: Situation, environment: dict[str, str]
) -> None:
    assert plan(there).environment == environment


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        (replace(NEW, has_address=False), "127.0.0.1"),
        (NEW, None),
        (replace(NEW, has_address=False, environment={"SPARK_LOCAL_IP": "10.0.0.1"}), None),
        (replace(NEW, has_address=False, given={"spark.master": "spark://other:7077"}), None),
        (replace(NEW, has_address=False, jvm_runs=True), None),
    ],
)
def test_a_machine_whose_name_has_no_address_gets_one(now: Situation, wanted: str | None) -> None:
    """Spark would end with an UnknownHostException, as in containers."""
    assert plan(now).environment.get("SPARK_LOCAL_IP") == wanted


def test_a_driver_that_runs_already_keeps_its_java_options() -> None:
    made = plan(replace(NEW, jvm_runs=True))
    assert DRIVER_JAVA not in made.settings
    assert EXECUTOR_JAVA in made.settings


def test_spark_defaults_are_read_as_spark_reads_them() -> None:
    text = "# a remark\n! another\n\nspark.a   one two\nspark.b=2\n spark.c : 3 \nspark.d\n"
    assert parsed(text) == {"spark.a": "one two", "spark.b": "2", "spark.c": "3", "spark.d": ""}


def test_arguments_of_spark_submit_are_read_as_it_reads_them() -> None:
    text = "--master 'local[2]' --conf spark.a=1 -c 'spark.b=x y' --properties-file=/p.conf pyspark-shell"
    assert of_arguments(text) == {"master": "local[2]", "spark.a": "1", "spark.b": "x y", "properties-file": "/p.conf"}


def test_what_is_no_builder_is_refused() -> None:
    with pytest.raises(UsageError, match=r"takes SparkSession\.builder, this is str"):
        configure_spark("local[2]")  # type: ignore[arg-type]


def test_the_recommended_file_sets_what_configure_spark_sets() -> None:
    found = parsed((REPOSITORY / "spark-conf" / "spark-defaults.conf").read_text())
    ours = {**SETTINGS, DRIVER_JAVA: plan(NEW).settings[DRIVER_JAVA], EXECUTOR_JAVA: plan(NEW).settings[EXECUTOR_JAVA]}
    assert {name: found.get(name) for name in ours} == ours
