"""The how-to pages without Spark run as they stand there, and print what they show; the services of maintenance, too."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from pyspark_commitlog import CommitLog
from tests.support import guides
from tests.support.commands import run


@pytest.mark.slow
@pytest.mark.parametrize("page", guides.PLAIN)
def test_a_page_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    guides.run(guides.HOW_TO / f"{page}.md", tmp_path)


def test_every_page_that_shows_output_is_run() -> None:
    shown = {page.stem for page in guides.HOW_TO.glob("*.md") if "\n```text\n" in page.read_text()}
    assert shown == {*guides.PLAIN, *guides.WITH_SPARK}


@pytest.mark.parametrize(
    ("output", "shown", "is_shown"),
    [
        ("a  b\n", "a b\n", True),
        ("a\n", "b\n", False),
        ("a 17 b\n", "a … b\n", True),
        ("a\nb\n", "a\n", False),
        ("a\nb\nc\n", "…\nc\n", True),
        ("c\n", "…\nc\n", True),
        ("a\nc\nd\n", "…\nc\n", False),
    ],
)
def test_an_output_is_compared_line_by_line(output: str, shown: str, is_shown: bool) -> None:
    assert guides.is_as_shown(output, shown) is is_shown


def test_an_output_belongs_to_the_block_before_it() -> None:
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n```\nnot run\n```\n\n```sh\nls /data/log\n```\n"
    assert guides.steps_of(page) == [
        guides.Step("python", "print(1)\n", "1\n"),
        guides.Step("sh", "ls /data/log\n"),
    ]
    assert "ls /home/data/log" in guides.program_of(guides.steps_of(page), Path("/home"))


def test_a_block_with_a_title_is_a_file_and_a_diff_shows_lines_of_it() -> None:
    page = '```python title="job.py"\nx = 1\ny = 2\n```\n\n```diff title="job.py"\n x = 1\n-y = 3\n+y = 2\n```\n'
    (step,) = guides.steps_of(page)
    assert step == guides.Step("python", "x = 1\ny = 2\n", title="job.py")
    assert "_file('job.py', 'x = 1\\ny = 2\\n')" in guides.program_of([step], Path("/home"))
    with pytest.raises(AssertionError, match="not in the file"):
        guides.steps_of(page.replace("+y = 2", "+y = 4"))
    with pytest.raises(SyntaxError):
        guides.steps_of(page.replace("-y = 3", "-y ="))


def test_the_commands_of_readme_print_what_it_shows(tmp_path: Path) -> None:
    readme = (guides.REPOSITORY / "README.md").read_text()
    ((code, shown),) = re.findall(r"^```\n(commitlog .*?)^```\n\n```\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    page = tmp_path / "page.md"
    page.write_text(f"```sh\n{code}```\n\n```text\n…\n{shown}```\n")
    guides.run(page, tmp_path)


def test_the_commands_next_to_kafka_s_are_commands_that_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the table, on the topics and the group that the page has until then."""
    page = (guides.TUTORIALS / "coming-from-kafka.md").read_text()
    commands = re.findall(r"^\| .* \| `commitlog (.*?)` \|$", page, re.MULTILINE)
    log = CommitLog(str(tmp_path / "log"))
    for topic in ("orders", "large-orders"):
        log.create_topic(topic)
    log.groups.commit("audit", {"large-orders": {0: 0}})
    monkeypatch.chdir(tmp_path)
    assert len(commands) > 10
    for command in commands:
        run(*shlex.split(command))
    assert (log.topics(), log.groups.list()) == (["large-orders", "orders"], ())


def maintained() -> list[str]:
    """Return the command lines of `commitlog maintain` in what runs it in production."""
    page = (guides.HOW_TO / "maintenance.md").read_text()
    blocks = page.partition("\n## Run it in production\n")[2].partition("\n### From Python\n")[0]
    yaml = [" ".join(json.loads(words)) for words in re.findall(r"^ *command: (\[.*\])$", blocks, re.MULTILINE)]
    lines = re.findall(r"(?:ExecStart=|spark )\S*/(commitlog maintain .*)$", blocks, re.MULTILINE)
    return [*lines, *yaml, *re.findall(r'bash_command="\S*/(commitlog maintain .*)"', blocks)]


def test_what_runs_maintenance_in_production_are_commands_that_work(tmp_path: Path) -> None:
    """On a root here, and one round of what goes round."""
    log = CommitLog(str(tmp_path / "log"))
    log.create_topic("orders")
    lines = [shlex.split(line) for line in maintained()]
    assert [line[3:] for line in lines] == [[], ["--once"], ["--once"], ["--once"]]
    for line in lines:
        run("maintain", log.url, *(line[3:] or ["--once"]))
    assert log.topic("orders").describe().since_maintained_ms is not None
