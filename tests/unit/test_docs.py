"""The documents: pages and links can be followed, names of code exist, README stays one screen to the first success."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name

import pytest

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.spark.read.source_options import source_options
from pyspark_commitlog.spark.write.sink_options import sink_options
from tests.modules import RULE
from tests.mutants.listed import load

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "pyspark_commitlog"
PAGES = sorted(REPOSITORY.glob("docs/*/**/*.md"))
DOCUMENTS = [
    page for places in ("*.md", "docs/**/*.md", "examples/**/*.md") for page in sorted(REPOSITORY.glob(places))
]


def slug(title: str) -> str:
    """Return the anchor that code hosts give a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def links(page: Path) -> list[str]:
    """Return where a page links to, but for other sites and what stands in code."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: os.path.relpath(page, REPOSITORY))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in map(slug, titles), link


def test_the_index_names_every_page() -> None:
    index = REPOSITORY / "docs/README.md"
    named = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert len(PAGES) > 30
    assert set(PAGES) - named == set()


def test_the_examples_are_listed() -> None:
    index = REPOSITORY / "examples/README.md"
    assert set(index.parent.glob("*.py")) == {index.parent / link for link in links(index) if link.endswith(".py")}


@pytest.mark.parametrize(
    "page",
    [
        "how-to/replay.md",
        "how-to/partitions.md",
        "how-to/retention.md",
        "how-to/backup.md",
        "how-to/upgrade.md",
        "how-to/test-your-job.md",
        "how-to/object-stores.md",
        "how-to/move-to-a-bucket.md",
        "how-to/query-engines.md",
        "how-to/maintenance.md",
        "how-to/full-disk.md",
        "reference/producer.md",
    ],
)
def test_a_task_is_two_clicks_from_readme(page: str) -> None:
    index = REPOSITORY / "docs" / "README.md"
    tasks = index.read_text().partition("\n## ")[0]
    assert "docs/README.md" in links(REPOSITORY / "README.md")
    assert re.search(rf"^\| .*\]\({re.escape(page)}[#)]", tasks, re.MULTILINE)


def test_readme_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 150


# --- what is generated from the code -----------------------------------------------------------------------


def generate(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, repository / "scripts/generate_reference.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_reference_says_what_the_code_does() -> None:
    assert generate(REPOSITORY, "--check").stderr == ""


@pytest.mark.parametrize(
    ("page", "file", "code", "other", "told"),
    [
        (
            "topic-configs.md",
            "config.py",
            '"segment.index.bytes", "10485760"',
            '"segment.index.bytes", "2048"',
            "2048 (2 KiB)",
        ),
        ("command-line.md", "cli/replicas.py", "min=0.1)] = 5.0", "min=0.5)] = 7.0", "[default: 7.0; x>=0.5]"),
        (
            "errors.md",
            "errors.py",
            "class StorageFullError(StorageError)",
            "class StorageFullError(UsageError)",
            "    - `StorageFullError`: No",
        ),
        (
            "metrics.md",
            "cli/common/metric_samples.py",
            '_TOPIC, "Number of partitions."',
            '_TOPIC, "How many partitions."',
            "| `topic` | How many partitions. |",
        ),
        (
            "source-options.md",
            "spark/common/known_options.py",
            'how long after the micro-batch before it is put off at most, once a record waits: `15m`, `30s`, `500ms`",\n        "15m"',
            'how long",\n        "20m"',
            "| `maxTriggerDelay` | how long | `20m` |",
        ),
        (
            "sink-options.md",
            "spark/common/known_options.py",
            '`sticky` or `roundrobin`", "sticky"',
            '`sticky` or `roundrobin`", "roundrobin"',
            "`sticky` or `roundrobin` | `roundrobin` |",
        ),
        (
            "producer.md",
            "producer/producer.py",
            "buffer_memory: int = 64 * 2**20",
            "buffer_memory: int = 32 * 2**20",
            "| `33554432` (32 MiB) |",
        ),
        (
            "consumer.md",
            "consumer/consumer.py",
            "max_poll_interval_ms: int = 300_000",
            "max_poll_interval_ms: int = 600_000",
            "| `600000` (10 min) |",
        ),
    ],
    ids=["configs", "commands", "errors", "metrics", "source", "sink", "producer", "consumer"],
)
def test_a_page_of_other_code_is_stale(tmp_path: Path, page: str, file: str, code: str, other: str, told: str) -> None:
    for directory in ("pyspark_commitlog", "scripts", "docs/reference"):
        shutil.copytree(REPOSITORY / directory, tmp_path / directory, ignore=shutil.ignore_patterns("__pycache__"))
    changed = tmp_path / "pyspark_commitlog" / file
    assert changed.read_text().count(code) == 1
    changed.write_text(changed.read_text().replace(code, other))

    checked = generate(tmp_path, "--check")

    assert checked.returncode == 1
    assert checked.stderr == f"stale: {page}: run scripts/generate_reference.py\n"
    assert told not in (tmp_path / "docs/reference" / page).read_text()
    assert generate(tmp_path).returncode == 0
    assert told in (tmp_path / "docs/reference" / page).read_text()


@pytest.mark.parametrize(
    ("page", "options"), [("source-options.md", source_options), ("sink-options.md", sink_options)]
)
def test_the_tables_of_options_name_each_that_there_is_once(
    page: str, options: Callable[[dict[str, str]], object]
) -> None:
    with pytest.raises(OptionError) as refused:
        options({"xyzzy": ""})
    known = str(refused.value).partition(" takes: ")[2].split(", ")
    rows = re.findall(r"^\| (`.*?) \| ", (REPOSITORY / "docs/reference" / page).read_text(), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(known) > 10
    assert sorted(named) == sorted(known)


# --- names of code in ARCHITECTURE.md -----------------------------------------------------------------------

ARCHITECTURE = (REPOSITORY / "ARCHITECTURE.md").read_text()
_STEP = re.compile(r"^\| \d+ \| `([\w.]+)` \|", re.MULTILINE)


def test_a_newcomer_s_walk_leads_to_ten_functions_that_say_what_they_do() -> None:
    steps = _STEP.findall(ARCHITECTURE)
    assert len(steps) == 10
    for step in steps:
        function = resolve_name(f"pyspark_commitlog.{step}")
        assert function.__doc__, step


def test_every_rule_is_cited_by_tests_and_every_rule_that_is_cited_is_there() -> None:
    """Invariants as `- **I1** …`, rules as rows of a table that say what breaks without them."""
    rules = re.findall(r"^(?:- \*\*(I\d+)\*\* |\| (R\d+) [^|]+ \| [^|]+ \|$)", ARCHITECTURE, re.MULTILINE)
    named = [invariant or rule for invariant, rule in rules]
    assert named == [*(f"I{number}" for number in range(1, 9)), *(f"R{number}" for number in range(1, 16))]
    cited = {path: _cited(path.read_text()) for path in REPOSITORY.glob("tests/**/*.py")}
    listed = {rule for guard in load() for rule in _cited(guard.rule)}
    assert set(named) - listed.union(*(cited[path] for path in cited if path.name.startswith("test_"))) == set()
    for path in PACKAGE.rglob("*.py"):
        cited[path] = _cited(path.read_text())
    assert {str(path): unknown for path, rules in cited.items() if (unknown := rules - set(named))} == {}
    assert listed <= set(named)


def _cited(text: str) -> set[str]:
    return {kind + number for kind, number in RULE.findall(text)}


def test_the_files_that_architecture_names_exist() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", ARCHITECTURE))
    assert len(named) > 20
    assert [name for name in named if not any((base / name).is_file() for base in (PACKAGE, REPOSITORY))] == []


def test_every_room_is_named_and_every_file_beside_them() -> None:
    rooms = ARCHITECTURE.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(?:\w+/)?(\w+)/`", rooms))
    assert named == {path.name for path in PACKAGE.rglob("*/") if "__" not in path.name}
    beside = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert beside == set(re.findall(r"`(\w+\.py)`", rooms))


def test_the_format_names_every_place_of_a_topic() -> None:
    """What is not named there, a stranger takes for garbage."""
    text = (REPOSITORY / "FORMAT.md").read_text().partition("\n## Names\n")[2].partition("\n## ")[0]
    places = [name for name, what in vars(TopicPaths).items() if isinstance(what, property) and name != "home"]
    assert len(places) >= 8
    paths = TopicPaths("t", "id")
    below = {getattr(paths, name).removeprefix(f"{paths.home}/") for name in places}
    assert [place for place in sorted(below) if not re.search(rf"[ /]{place}[/ ]", text)] == []
