"""Importing the package: light, harmless to other data sources, and clear to an outdated PySpark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_commitlog

HEAVY = ("pyspark", "pyarrow", "numpy", "fsspec", "pandas", "msgspec")


def run(code: str) -> str:
    """Run code in a fresh interpreter; return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_modules_log_under_the_name_of_their_room() -> None:
    """docs/reference/logging.md: who turns a room's logger up or down hears all of that room, and nothing else."""
    package = Path(pyspark_commitlog.__file__).parent
    named = [
        (path.relative_to(package).parts[0], name)
        for path in package.rglob("*.py")
        for name in re.findall(r'^log(?:ger)? = logging.getLogger\("(.*)"\)', path.read_text(), re.MULTILINE)
    ]
    assert {room for room, _ in named} == {
        "topic", "replication", "groups", "consumer", "producer", "copying", "spark", "cli",
    }  # fmt: skip
    assert all(name == f"pyspark_commitlog.{room}" for room, name in named)


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = run(f"import sys, pyspark_commitlog; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert loaded == "[]"


def test_the_producers_room_exports_what_programs_use_and_loads_it_when_it_is_used() -> None:
    code = (
        "import sys, pyspark_commitlog.producer as p\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])\n"
        "from pyspark_commitlog import Producer\n"
        "from pyspark_commitlog.producer import BatchMetadata, Producer as exported, RecordMetadata\n"
        "print(p.__all__, exported is Producer, RecordMetadata.__name__, BatchMetadata.__name__)"
    )
    exported = "['BatchMetadata', 'Producer', 'RecordMetadata'] True RecordMetadata BatchMetadata"
    assert run(code) == f"[]\n{exported}"


def test_a_name_that_the_producers_room_has_not_is_an_attribute_error() -> None:
    from pyspark_commitlog import producer

    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = producer.nope


def test_the_python_client_needs_no_pyspark() -> None:
    assert run("import sys; from pyspark_commitlog import CommitLog; print('pyspark' in sys.modules)") == "False"


def test_on_windows_one_error_names_wsl() -> None:
    """Nothing fails before by what Windows has not."""
    code = (
        "import sys, asyncio, subprocess; sys.modules['fcntl'] = None\n"
        "from pyspark_commitlog import CommitLog, Consumer, Producer; sys.platform = 'win32'\n"
        "for opened in (CommitLog, Consumer, Producer):\n"
        "    try: opened('C:/log')\n"
        "    except Exception as error: print(type(error).__name__, 'WSL' in str(error))"
    )
    assert run(code) == "\n".join(["UnsupportedError True"] * 3)


def test_the_source_is_a_pyspark_data_source_with_the_format_s_name() -> None:
    code = (
        "import pyspark_commitlog as p; from pyspark.sql.datasource import DataSource;"
        "print(hasattr(p, 'DefaultSource'), issubclass(p.DefaultSource, DataSource), p.DefaultSource.name())"
    )
    assert run(code) == "True True commitlog"


def test_without_pyspark_the_source_is_merely_absent() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import pyspark_commitlog as p;print(hasattr(p, 'DefaultSource'))"
    assert run(code) == "False"


def test_an_outdated_pyspark_is_told_which_one_is_needed() -> None:
    code = (
        "import pyspark; pyspark.__version__ = '4.1.2'; import pyspark_commitlog as p;"
        "source = p.DefaultSource; print(source.name())\n"
        "try: source({})\n"
        "except p.errors.UnsupportedError as error: print(error)"
    )
    name, told = run(code).splitlines()
    assert name == "commitlog"
    assert "needs PySpark 4.2 or newer, this is 4.1.2" in told


@pytest.mark.parametrize("name", ["CommitLog", "Producer", "Record", "errors", "__version__"])
def test_public_names_are_there(name: str) -> None:
    import pyspark_commitlog

    assert name in pyspark_commitlog.__all__
    assert getattr(pyspark_commitlog, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    import pyspark_commitlog

    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = pyspark_commitlog.nope


def test_looking_for_the_source_and_checking_its_options_imports_nothing_that_reads() -> None:
    """Spark starts a process for each of the two, which a query waits for."""
    code = (
        "import sys, pyspark_commitlog\n"
        "source = pyspark_commitlog.DefaultSource({'path': '/tmp/root', 'subscribe': 't', 'startingOffsets': 'earliest'})\n"
        "assert 'value' in source.schema().names\n"
        "print([m for m in ('pyarrow', 'numpy', 'msgspec', 'fsspec', 'pyspark_commitlog.journal') if m in sys.modules])"
    )
    assert run(code) == "[]"


def test_a_streaming_query_waits_for_few_imports() -> None:
    """Each query starts a Python process for its source, and waits until that has imported it."""
    package = "pyspark_commitlog"
    unneeded = [
        "api.commit_log",
        "groups",
        "topic.maintain",
        "topic.write",
        "topic.lookup.timestamps",
        "topic.read.reader",
        "spark.read.batch",
        "spark.write.sink",
    ]
    names = ["pyarrow.compute", *(f"{package}.{name}" for name in unneeded)]
    code = f"import sys, {package}.spark.source, {package}.spark.read.stream; print([m for m in {names!r} if m in sys.modules])"
    assert run(code) == "[]"


def test_the_help_of_the_command_line_waits_for_nothing_that_reads_or_writes() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pyspark_commitlog.cli.app import app\n"
        "assert 'produce' in CliRunner().invoke(app, ['--help']).output\n"
        "print([m for m in ('pyspark', 'pyarrow', 'numpy', 'msgspec', 'fsspec') if m in sys.modules])"
    )
    assert run(code) == "[]"
