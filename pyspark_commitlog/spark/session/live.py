"""Live view of streaming queries in a notebook, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import TYPE_CHECKING, Any

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.spark.session.lag import QueryLag

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Newest micro-batches of a query that are plotted.
POINTS = 500


def draw(history: Mapping[str, Sequence[QueryLag]]) -> Figure:
    """Plot records behind, and rates of reading (solid) and arrival (dotted).

    `history`: each query's micro-batches, the oldest first.
    """
    _need("matplotlib")
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    lags, rates = figure.subplots(2, sharex=True)
    for batches in filter(None, history.values()):
        times = [datetime.fromisoformat(batch.at) for batch in batches]
        (line,) = lags.plot(
            times, [batch.lag for batch in batches], marker=".", label=batches[-1].title or batches[-1].query
        )
        colour = line.get_color()
        rates.plot(times, [batch.process_rate for batch in batches], marker=".", color=colour)
        rates.plot(times, [batch.input_rate for batch in batches], linestyle=":", color=colour)
    lags.set_ylabel("records behind")
    rates.set_ylabel("records/s")
    for axes in (lags, rates):
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
    if any(history.values()):
        lags.legend(loc="upper right")
        locator = AutoDateLocator()
        rates.xaxis.set_major_locator(locator)
        rates.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    return figure


def svg(figure: Figure) -> str:
    """Figure as an `<svg>` element."""
    text = StringIO()
    figure.savefig(text, format="svg")
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]


class Live:
    """Notebook output that any thread can update."""

    def __init__(self, html: str) -> None:
        _need("IPython")
        from IPython.display import display

        self._handle: Any = display(_html(html), display_id=True)

    def update(self, html: str) -> None:
        """Replace the output; outside a notebook, do nothing."""
        if self._handle is not None:
            self._handle.update(_html(html))


def _html(text: str) -> Any:
    from IPython.display import HTML

    return HTML(text)


def _need(module: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise UsageError(f"a live view needs {module}: pip install 'pyspark-commitlog[notebook]'")
