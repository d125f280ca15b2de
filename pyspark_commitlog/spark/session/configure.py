"""Settings that make Spark fast: `configure_spark(SparkSession.builder)`.

All are safe for every job and leave the user's unchanged. The import does not import pyspark.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.storage import environment, process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("pyspark_commitlog.spark")

#: Safe for every job. Reasons: spark-conf/spark-defaults.conf.
SETTINGS: Mapping[str, str] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}
#: Read when a JVM starts. Spark checks for nulls itself before it takes a value.
JAVA_OPTIONS = "-Darrow.enable_null_check_for_get=false"
#: Added by `arrow_checks=False`: no check of bounds with every value.
UNCHECKED = "-Darrow.enable_unsafe_memory_access=true"
DRIVER_JAVA, EXECUTOR_JAVA = "spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions"
# For checkpoints on a local disk: Spark's default starts a process for each rename.
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_DEFAULT_FS = ("spark.hadoop.fs.defaultFS", "spark.hadoop.fs.default.name")
_ADDRESS = "SPARK_LOCAL_IP"
_OWN_PYTHON = ("spark.pyspark.python", "spark.pyspark.driver.python")


@dataclass(frozen=True, slots=True)
class Situation:
    """Inputs of `plan`.

    Attributes:
        given: the user's settings, from all sources.
        quick_python: script that starts `python` sooner; None if unusable.
        jvm_runs: Spark's JVM runs already (spark-submit): its options and environment stand.
        has_address: this machine's name has an address; Spark needs one.
    """

    given: Mapping[str, str]
    environment: Mapping[str, str]
    python: str
    quick_python: str | None
    jvm_runs: bool
    has_address: bool = True

    @property
    def is_local(self) -> bool:
        """Whether driver and workers are this machine."""
        return self.given.get("spark.master", "local[*]").startswith("local")

    @property
    def has_hadoop(self) -> bool:
        """Whether paths without a scheme may be of Hadoop's file system."""
        return any(name in self.environment for name in _HADOOP) or any(name in self.given for name in _DEFAULT_FS)


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings and variables to set, and the names kept as given."""

    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        pairs = [*self.environment.items(), *self.settings.items()]
        made = ", ".join(f"{name}={value}" for name, value in pairs) or "nothing"
        return f"set {made}" + (f"; kept yours: {', '.join(self.kept)}" if self.kept else "")


def plan(now: Situation, *, arrow_checks: bool = True) -> Plan:
    """Return the safe settings that the user did not give (pure)."""
    options = JAVA_OPTIONS if arrow_checks else f"{UNCHECKED} {JAVA_OPTIONS}"
    wanted = {**SETTINGS, EXECUTOR_JAVA: options}
    if not now.jvm_runs:
        wanted[DRIVER_JAVA] = options
    if now.is_local and not now.has_hadoop:
        wanted[CHECKPOINTS] = LOCAL_CHECKPOINTS
    kept = tuple(name for name in wanted if name in now.given)
    settings = {name: value for name, value in wanted.items() if name not in now.given}
    return Plan(settings, {**_python(now), **_address(now)}, kept)


def _address(now: Situation) -> dict[str, str]:
    needed = now.is_local and not now.jvm_runs and not now.has_address and _ADDRESS not in now.environment
    return {_ADDRESS: "127.0.0.1"} if needed else {}


def _python(now: Situation) -> dict[str, str]:
    """Name this interpreter to Spark, except on a cluster."""
    named = now.environment.get("PYSPARK_PYTHON")
    if not now.is_local or now.jvm_runs or any(name in now.given for name in _OWN_PYTHON):
        return {}
    if named not in (None, now.python):
        return {}
    if now.quick_python is None:
        return {} if named else {"PYSPARK_PYTHON": now.python}
    return {"PYSPARK_PYTHON": now.quick_python, "QUICK_PYTHON": now.python}


def configure_spark(builder: SparkSession.Builder, *, arrow_checks: bool = True) -> SparkSession.Builder:
    """Add the settings that make this source fast; call it before `getOrCreate`.

    Your own settings stay: from the builder, `spark-defaults.conf`, `--conf` or the environment. If Python and Java
    run on one machine, Spark's Python processes become this interpreter (`PYSPARK_PYTHON`), started without compiling
    PySpark. `pyspark_commitlog.spark` logs the settings made at INFO. An existing session keeps its settings; a
    warning names those that it lacks.

    Args:
        builder: the `SparkSession.builder`, which is changed and returned.
        arrow_checks: False omits Arrow's bounds check of every value: reads are faster, but a fault in Spark or a
            Python function crashes Java instead of failing the query. Default: True.

    Raises:
        UsageError: `builder` is no builder.
    """
    options = getattr(builder, "_options", None)
    if not isinstance(options, dict):
        raise UsageError(f"configure_spark takes SparkSession.builder, this is {type(builder).__name__}: {builder!r}")
    if "spark.remote" in options or environment("SPARK_REMOTE"):
        log.info("Spark Connect: the settings are the server's (commitlog spark-conf prints them)")
        return builder
    if (running := _running()) is not None:
        missing = sorted(name for name in SETTINGS if name not in {**running, **options})
        if missing:
            log.warning("a Spark session is there already, and goes on without %s: call configure_spark before it "
                        "is made, in a new Python", ", ".join(missing))  # fmt: skip
        return builder
    made = plan(_situation(options), arrow_checks=arrow_checks)
    for name, value in made.environment.items():
        process.set_environment(name, value)
    for name, value in made.settings.items():
        builder.config(name, value)
    log.info("%s", made)
    return builder


def _running() -> dict[str, str] | None:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return None if context is None else dict(context.getConf().getAll())


def _situation(options: Mapping[str, Any]) -> Situation:
    from pyspark import SparkContext

    submitted = environment("PYSPARK_GATEWAY_PORT") is not None
    jvm_runs = submitted or SparkContext._gateway is not None
    given = {**(_of_jvm() if jvm_runs else _of_files()), **{name: str(value) for name, value in options.items()}}
    names = (*_HADOOP, "PYSPARK_PYTHON", _ADDRESS)
    return Situation(
        given=given,
        environment={name: value for name in names if (value := environment(name))},
        python=process.interpreter(),
        quick_python=quick_python() if _pyspark_is_installed() else None,
        jvm_runs=jvm_runs,
        has_address=process.has_address(),
    )


def _of_jvm() -> dict[str, str]:
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _of_files() -> dict[str, str]:
    home, submit = _spark_home(), environment("PYSPARK_SUBMIT_ARGS") or ""
    directory = environment("SPARK_CONF_DIR") or f"{home}/conf"
    read = process.read_text(f"{directory}/spark-defaults.conf")
    named = of_arguments(submit)
    more = process.read_text(named["properties-file"]) if "properties-file" in named else ""
    settings = {**parsed(read), **parsed(more), **{k: v for k, v in named.items() if k.startswith("spark.")}}
    if master := named.get("master") or environment("MASTER"):
        settings.setdefault("spark.master", master)
    return settings


def parsed(text: str) -> dict[str, str]:
    """Parse a `spark-defaults.conf`, a name and a value per line (pure)."""
    settings = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            end = next((i for i, c in enumerate(stripped) if c in " \t=:"), len(stripped))
            settings[stripped[:end]] = stripped[end:].lstrip(" \t").removeprefix("=").removeprefix(":").strip()
    return settings


def of_arguments(text: str) -> dict[str, str]:
    """Parse spark-submit's arguments to settings (pure).

    `--conf name=value` is keyed by name, `--other value` by other.
    """
    import shlex

    settings: dict[str, str] = {}
    words = iter(shlex.split(text))
    for word in words:
        if not word.startswith("-"):
            continue
        option, joined, value = word.lstrip("-").partition("=")
        if not joined:
            value = next(words, "")
        if option in ("conf", "c"):
            option, _, value = value.partition("=")
        settings[option] = value
    return settings


def quick_python() -> str | None:
    """Return the path of `quick-python`; None if it can't be run."""
    return process.executable(process.sibling_path(__file__, "quick-python"))


def _spark_home() -> str:
    from pyspark.find_spark_home import _find_spark_home

    return str(_find_spark_home())


def _pyspark_is_installed() -> bool:
    import pyspark

    home, installed = _spark_home(), process.sibling_path(pyspark.__file__, "")
    return ".zip" not in installed and process.is_same(home, installed)
