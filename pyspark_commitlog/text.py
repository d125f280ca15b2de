"""Text for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from pyspark_commitlog.errors import CommitLogError

#: Rows of a table in a notebook's cell.
MAX_ROWS = 100

#: Advice for the output modes that Spark's Python sinks lack.
UPDATE_ADVICE = (
    "outputMode('update') with foreachBatch, which writes each batch's rows: rows.write.format('commitlog')"
    ".mode('append').option('txnAppId', <query id>).option('txnVersion', <batch id>) "
    "(docs/how-to/from-kafka.md)"
)


def visible(text: str) -> str:
    r"""Return text with control characters escaped (`\x1b`), for terminals."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\t" else each.encode("unicode_escape").decode() for each in text
    )


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield lines of aligned columns; `-` for None."""
    texts = [head, *([("-" if cell is None else visible(str(cell))) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text in texts:
        yield "  ".join(cell.ljust(width) for cell, width in zip(text, widths, strict=True)).rstrip()


def html_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table for a notebook's cell, at most `MAX_ROWS` rows and how many there are; `-` for None."""
    lines = [_html_row("th", head), *(_html_row("td", row) for row in rows[:MAX_ROWS])]
    left_out = len(rows) - MAX_ROWS
    return f"<table>{''.join(lines)}</table>" + (html_lines([f"and {left_out:,} more"]) if left_out > 0 else "")


def _html_row(tag: str, cells: Sequence[object]) -> str:
    texts = ("-" if cell is None else escape(str(cell)) for cell in cells)
    return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"


def html_lines(lines: Iterable[str]) -> str:
    """Return lines for a notebook's cell."""
    return "".join(f"<div>{escape(line)}</div>" for line in lines)


def html_or_error(what: object, show: Callable[[], str]) -> str:
    """Return what a notebook's cell shows of a log or topic, or why it can't be shown."""
    try:
        return show()
    except CommitLogError as error:
        return html_lines([f"{what!r}: {error}"])


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that resemble a name, nearest first."""
    from difflib import get_close_matches

    return get_close_matches(name, [other for other in known if other != name], n=3, cutoff=0.7)


def did_you_mean(similar: str | None) -> str:
    """Hint at a similar name, if any."""
    return f" (did you mean {similar!r}?)" if similar else ""


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 record`, `2 records`."""
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what[:-1]}ies" if what.endswith("y") else f"{number:,} {what}s"
