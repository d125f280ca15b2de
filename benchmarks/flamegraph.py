"""Stacks as a flame graph: read as Java Flight Recorder and py-spy tell them, drawn as SVG.

Stacks are folded: frames from the outermost on, and how many samples have them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

Stack = tuple[str, ...]
Folded = Counter[Stack]

#: Frames with a smaller share of all samples are left out, with what is above them.
LEAST_SHARE = 0.004
WIDTH, ROW, GLYPH = 1200, 16, 6.3
_COLOURS = (
    (re.compile("pyspark_commitlog"), "#f0a35e"),
    (re.compile("arrow|lz4|crc32c", re.IGNORECASE), "#8fbf7f"),
    (re.compile(r"numpy|\.so"), "#b9cf8a"),
    (re.compile(r"\("), "#e8c9a0"),
)  # fmt: skip
_OTHER = "#d9d2c3"
_JAVA_FRAME = re.compile(r"^\s+([\w.$/<>]+)\(")
_THREAD = re.compile(r'sampledThread = "([^"]*)"')
_LINE_NUMBER = re.compile(r"^(.*) \((?:.*/)?([^/():]+)(?::\d+)?\)$")


def java_stacks(printed: Iterable[str], thread: str) -> Folded:
    """Return the stacks of the threads whose names start with `thread`, from what `jfr print` prints."""
    found: Folded = Counter()
    frames: list[str] = []
    wanted = False
    for line in printed:
        if line.startswith("jdk."):
            frames, wanted = [], False
        elif (named := _THREAD.search(line)) is not None:
            wanted = named[1].startswith(thread)
        elif line.startswith("}"):
            if wanted and frames:
                found[tuple(reversed(frames))] += 1
        elif (frame := _JAVA_FRAME.match(line)) is not None:
            frames.append(".".join(frame[1].split(".")[-2:]))
    return found


def python_stacks(raw: Iterable[str]) -> Folded:
    """Return the stacks in what `py-spy record --format raw` writes, without processes and line numbers."""
    found: Folded = Counter()
    for line in raw:
        stack, _, count = line.rstrip().rpartition(" ")
        frames = [_told(frame) for frame in stack.split(";") if not frame.startswith(("process ", "thread "))]
        frames = [frame for frame in frames if "(timed.py)" not in frame]
        joined = [frame for at, frame in enumerate(frames) if at == 0 or frame != frames[at - 1]]
        if joined:
            found[tuple(joined)] += int(count)
    return found


def _told(frame: str) -> str:
    """Return a frame's function and file; without a symbol, the library alone."""
    match = _LINE_NUMBER.match(frame)
    if match is None:
        return frame
    name, file = match.groups()
    return f"[{file}]" if name.startswith("0x") else f"{name.split('(')[0]} ({file})"


def below(folded: Folded, root: re.Pattern[str]) -> Folded:
    """Return the stacks that have a frame like `root`, from the first one on."""
    found: Folded = Counter()
    for stack, count in folded.items():
        at = next((at for at, frame in enumerate(stack) if root.search(frame)), None)
        if at is not None:
            found[stack[at:]] += count
    return found


@dataclass
class _Node:
    count: int = 0
    below: dict[str, _Node] = field(default_factory=dict)

    def add(self, stack: Sequence[str], count: int) -> None:
        node = self
        node.count += count
        for frame in stack:
            node = node.below.setdefault(frame, _Node())
            node.count += count


def draw(folded: Folded, title: str, target: Path) -> None:
    """Write the stacks as an SVG: callers are above what they call, widths are shares of all samples."""
    root = _Node()
    for stack, count in folded.items():
        root.add(stack, count)
    boxes: list[str] = []
    depth = _boxes(root, root.count, 0.0, 1, boxes)
    height = (depth + 1) * ROW + 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="monospace" font-size="10.5"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="4" y="12" font-weight="bold">{escape(title)}, {root.count:,} samples</text>'
    )
    target.write_text("\n".join([head, *boxes, "</svg>\n"]))


def _boxes(node: _Node, total: int, left: float, row: int, boxes: list[str]) -> int:
    """Add the boxes below a node; return the deepest row."""
    deepest = row - 1
    for name, child in sorted(node.below.items(), key=lambda item: -item[1].count):
        share = child.count / total
        if share < LEAST_SHARE:
            break
        boxes.append(_box(name, share, left, row))
        deepest = max(deepest, _boxes(child, total, left, row + 1, boxes))
        left += share * WIDTH
    return max(deepest, row - 1)


def _box(name: str, share: float, left: float, row: int) -> str:
    wide, top = share * WIDTH, row * ROW + 2
    colour = next((colour for pattern, colour in _COLOURS if pattern.search(name)), _OTHER)
    room = int((wide - 4) / GLYPH)
    label = name if len(name) <= room else name[: room - 1] + "…" if room > 3 else ""
    text = f'<text x="{left + 2:.1f}" y="{top + 11}">{escape(label)}</text>' if label else ""
    size = f'width="{max(wide - 0.5, 0.5):.1f}" height="{ROW - 1}"'
    rect = f'<rect x="{left:.1f}" y="{top}" {size} fill="{colour}"/>'
    return f"<g><title>{escape(name)}: {share:.1%}</title>{rect}{text}</g>"
