"""`commitlog cat --grep`: the records whose key or value matches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_commitlog.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns that are searched.
SEARCHED = ("key", "value")


@dataclass(frozen=True, slots=True)
class Grep:
    """A regular expression of RE2, which takes time in proportion to what it searches."""

    pattern: str

    def __post_init__(self) -> None:
        """Refuse what is no expression."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            pc.match_substring_regex(pa.array([b""]), self.pattern)
        except pa.ArrowInvalid as error:
            raise UsageError(f"--grep {self.pattern}: no regular expression (RE2): {error}") from None

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with a key or value in which the expression is found; of a typed topic, in the JSON."""
        import pyarrow.compute as pc

        found = [
            pc.fill_null(pc.match_substring_regex(batch.column(name), self.pattern), fill_value=False)
            for name in SEARCHED
        ]
        return batch.filter(pc.or_(*found))
