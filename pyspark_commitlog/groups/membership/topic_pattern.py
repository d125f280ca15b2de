"""Topic pattern, evaluated by its member only. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from pyspark_commitlog.errors import UsageError

#: Maximum characters of a pattern: more than four of the longest topic names.
MAX_PATTERN = 1024


class TopicPattern:
    """Python regular expression for whole names, with cached results."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN:
            raise UsageError(f"pattern has {len(text)} characters, at most {MAX_PATTERN} are allowed: {text[:80]!r}…")
        try:
            self._pattern = re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise UsageError(f"pattern={text!r} is no regular expression: {error}") from error
        self._seen: dict[str, bool] = {}

    def matching_names(self, names: Collection[str]) -> tuple[str, ...]:
        """Names that match, sorted."""
        self._seen = {name: self._seen[name] if name in self._seen else self._finds(name) for name in names}
        return tuple(sorted(name for name, matches in self._seen.items() if matches))

    def _finds(self, name: str) -> bool:
        return self._pattern.fullmatch(name) is not None
