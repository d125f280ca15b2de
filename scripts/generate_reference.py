"""Writes the tables of docs/reference that the code has already, between the marks of each page.

.venv/bin/python scripts/generate_reference.py             # rewrite the pages
.venv/bin/python scripts/generate_reference.py --check     # as `make check`: fail if a page is stale
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from pyspark_commitlog.cli.app import app  # noqa: E402
from pyspark_commitlog.cli.common.metric_samples import METRICS  # noqa: E402
from pyspark_commitlog.config import DAY_MS, HOUR_MS, KEYS, LONG_MAX, Key  # noqa: E402
from pyspark_commitlog.consumer import Consumer  # noqa: E402
from pyspark_commitlog.errors import CommitLogError  # noqa: E402
from pyspark_commitlog.format.schema.arrow_types import to_arrow  # noqa: E402
from pyspark_commitlog.format.schema.ddl_tokens import WORDS  # noqa: E402
from pyspark_commitlog.format.schema.types import ATOMIC, REMEDIES  # noqa: E402
from pyspark_commitlog.metrics import COUNTERS, Metric  # noqa: E402
from pyspark_commitlog.producer import Producer  # noqa: E402
from pyspark_commitlog.producer.records.delivery_errors import is_retriable  # noqa: E402
from pyspark_commitlog.spark.common.known_options import SINK_OPTIONS, SOURCE_OPTIONS, Option  # noqa: E402
from pyspark_commitlog.spark.session.lag import QUERY_METRICS  # noqa: E402

BEGIN, END = "<!-- generated -->\n", "<!-- /generated -->\n"
ESCAPED_BAR = r"\|"
_MS = {"d": DAY_MS, "h": HOUR_MS, "min": 60_000, "s": 1000}
_BYTES = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}
Rows = Iterator[Sequence[str]]


def main() -> int:
    """Rewrite the pages, or name those that are stale; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is stale")
    check = parser.parse_args().check
    stale = []
    for name, generate in PAGES.items():
        page = REPOSITORY / "docs" / "reference" / name
        before, _, rest = page.read_text().partition(BEGIN)
        written, mark, after = rest.partition(END)
        lines = "".join(f"{line}\n" for line in generate())
        if not mark:
            sys.exit(f"{page} lacks the marks {BEGIN.strip()} and {END.strip()}")
        if written != lines:
            stale.append(name)
            if not check:
                page.write_text(before + BEGIN + lines + END + after)
    if check and stale:
        print(f"stale: {', '.join(stale)}: run scripts/generate_reference.py", file=sys.stderr)
    return int(check and bool(stale))


def table(head: Sequence[str], rows: Rows) -> Iterator[str]:
    """Yield the lines of a Markdown table (pure)."""
    for row in (head, ["---" for _ in head], *rows):
        yield f"| {' | '.join(cell.replace('|', ESCAPED_BAR) for cell in row)} |"


# ---- topic-configs.md ----


def configs() -> Iterator[str]:
    """Yield the table of topic configs."""
    rows = ((f"`{key.name}`", readable(key), allowed(key), key.doc) for key in KEYS.values())
    return table(("config", "default", "takes", "meaning"), rows)


def readable(key: Key) -> str:
    """Return a default, with its unit if it is a round number of a larger one (pure)."""
    if key.default == str(LONG_MAX):
        return "no limit"
    units = _MS if key.name.endswith(".ms") else _BYTES if key.name.endswith(("bytes", "size")) else {}
    return f"{key.default}{rounded(int(key.default), units) if units else ''}"


def rounded(number: int, units: dict[str, int]) -> str:
    """Return a number in the largest unit of which it is a multiple: ` (1 MiB)`; empty if there is none (pure)."""
    known = (f" ({number // size} {unit})" for unit, size in units.items() if number >= size and number % size == 0)
    return next(known, "")


def allowed(key: Key) -> str:
    """Return what a config takes (pure)."""
    if key.choices:
        choices = ", ".join(f"`{choice}`" for choice in key.choices)
        return f"{choices}; several with commas" if key.several else choices
    return f"{key.minimum} or more" if key.maximum is None else f"{key.minimum} to {key.maximum}"


# ---- command-line.md ----

#: A parameter that so many commands have stands in a table of its own.
COMMON = 10


def commands() -> Iterator[str]:
    """Yield a table of common parameters, then for each command its usage, its help and its own parameters."""
    root = typer.main.get_command(app)
    found = [(name, command, parameters(command)) for name, command in leaves("commitlog", root)]
    times = Counter(row for _, _, rows in found for row in rows)
    common = [row for row, count in times.items() if count >= COMMON]
    yield from table(("before the command", ""), parameters(root))
    yield from ("", *table(("in most commands", ""), common))
    for name, command, rows in found:
        arguments = [parameter_name(each) for each in command.params if each.param_type_name == "argument"]
        yield from ("", f"### `{' '.join([name, *arguments])}`", "", *escaped(command.help).splitlines())
        if own := [row for row in rows if row not in common]:
            yield from ("", *table(("", ""), own))


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the command of each that is no group."""
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
    for word, child in (below or {}).items():
        yield from leaves(f"{name} {word}", child)


def parameters(command: Any) -> list[tuple[str, str]]:
    """Return the name of each parameter, and its line of `-h`."""
    context = typer.Context(command)
    shown = [each for each in command.params if not each.name.endswith("_completion")]
    return [(f"`{parameter_name(each)}`", escaped(each.get_help_record(context)[1])) for each in shown]


def parameter_name(parameter: Any) -> str:
    """Return an option's names, or an argument's in a usage line: `ROOT`, `[TOPIC…]` (pure)."""
    if parameter.param_type_name == "option":
        return " ".join([", ".join(parameter.opts), *filter(None, [parameter.metavar])])
    name = (parameter.metavar or parameter.name.upper()).removesuffix("...") + "…" * (parameter.nargs < 0)
    return name if parameter.required else f"[{name}]"


def escaped(text: str) -> str:
    """Return text as Markdown: a backslash stays one (pure)."""
    return text.replace("\\", "\\\\")


# ---- errors.md ----


def error_tree(error: type[CommitLogError] = CommitLogError, depth: int = 0) -> Iterator[str]:
    """Yield a nested list of the errors: other classes to catch them as, whether to retry, the docstring's summary."""
    others = [f"`{base.__name__}`" for base in error.__bases__[depth == 0 :] if not issubclass(base, CommitLogError)]
    remarks = [*others, *(["retriable"] if is_retriable(error()) else [])]
    summary = " ".join((error.__doc__ or "").partition("\n\n")[0].split())
    also = f" ({', '.join(remarks)})" if remarks else ""
    yield f"{'  ' * depth}- `{error.__name__}`{also}: {summary}"
    for child in error.__subclasses__():
        if child.__module__ == CommitLogError.__module__:
            yield from error_tree(child, depth + 1)


# ---- column-types.md ----

#: Types with parameters: their DDL and an example in Spark's JSON form.
_COMPOSED = {
    "decimal": ("(p, s)", "decimal(10,2)"),
    "array": ("<T>", {"type": "array", "elementType": "long", "containsNull": True}),
    "map": ("<K, V>", {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}),
    "struct": ("<a: T>", {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True}]}),
}


def column_types() -> Iterator[str]:
    """Yield the table of types that are stored, and that of the others."""
    stored = [(name, ("", name)) for name in ATOMIC] + list(_COMPOSED.items())
    rows = ((f"`{name}`", words(name, suffix), f"`{to_arrow(example)}`") for name, (suffix, example) in stored)
    yield from table(("type", "DDL", "Arrow type"), rows)
    yield ""
    yield from table(("refused", "instead"), ((f"`{name}`", remedy) for name, remedy in REMEDIES.items()))


def words(name: str, suffix: str) -> str:
    """Return the DDL of a type: its words, with parameters (pure)."""
    return ", ".join(f"`{word}{suffix}`" for word, kind in WORDS.items() if kind == name)


# ---- metrics.md ----


def metrics() -> Iterator[str]:
    """Yield the table of a root's metrics, and those of a process's counters and a query's gauges."""
    yield from ("## Of a root: `commitlog metrics`", "", *metric_table(METRICS.values()))
    yield from ("", "## Of a process: `pyspark_commitlog.metrics`", "", *metric_table(COUNTERS.values()))
    yield from ("", "## Of a query: `CommitLogListener.prometheus`", "", *metric_table(QUERY_METRICS.values()))


def metric_table(of: Iterable[Metric]) -> Iterator[str]:
    """Yield the table of some metrics (pure)."""
    rows = ((f"`{each.name}`", ", ".join(f"`{label}`" for label in each.labels), each.help) for each in of)
    return table(("metric", "labels", "meaning"), rows)


# ---- source-options.md, sink-options.md ----


def source_options() -> Iterator[str]:
    """Yield the table of the source's options."""
    return option_table(SOURCE_OPTIONS)


def sink_options() -> Iterator[str]:
    """Yield the table of the sink's options."""
    return option_table(SINK_OPTIONS)


def option_table(options: Iterable[Option]) -> Iterator[str]:
    """Yield the table of some options (pure)."""
    rows = ((f"`{each.name}`", each.doc, f"`{each.default}`" if each.default else each.without) for each in options)
    return table(("option", "meaning", "default"), rows)


# ---- producer.md, consumer.md ----


def producer_parameters() -> Iterator[str]:
    """Yield the table of a producer's parameters."""
    return parameter_table(Producer)


def consumer_parameters() -> Iterator[str]:
    """Yield the table of a consumer's parameters."""
    return parameter_table(Consumer)


def parameter_table(client: type) -> Iterator[str]:
    """Yield the table of a class's parameters: those of `__init__`, each with the text of the class's `Args`."""
    documented = arguments(inspect.getdoc(client) or "")
    given = list(inspect.signature(client).parameters.values())
    rows = ((f"`{each.name}`", documented[each.name], default_of(each)) for each in given)
    return table(("parameter", "meaning", "default"), rows)


def arguments(docstring: str) -> dict[str, str]:
    """Return the texts of the section `Args`, by name, with links to the pages that they name (pure)."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", docstring + "\n", re.MULTILINE)
    texts = re.findall(r"^    (\w+): (.*\n(?:     .*\n)*)", section[1] if section else "", re.MULTILINE)
    link = r"[\2](../\1/\2.md)"
    return {name: re.sub(r"docs/([\w-]+)/([\w-]+)\.md", link, " ".join(text.split())) for name, text in texts}


def default_of(parameter: inspect.Parameter) -> str:
    """Return a parameter's default, with its unit if it is a round number of a larger one (pure)."""
    value = parameter.default
    if value is parameter.empty:
        return "none" if parameter.kind is parameter.VAR_POSITIONAL else "required"
    units = _MS if parameter.name.endswith("_ms") else _BYTES if isinstance(value, int) else {}
    return f"`{value!r}`{rounded(value, units) if type(value) is int else ''}"


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "topic-configs.md": configs,
    "command-line.md": commands,
    "errors.md": error_tree,
    "column-types.md": column_types,
    "metrics.md": metrics,
    "source-options.md": source_options,
    "sink-options.md": sink_options,
    "producer.md": producer_parameters,
    "consumer.md": consumer_parameters,
}


if __name__ == "__main__":
    sys.exit(main())
