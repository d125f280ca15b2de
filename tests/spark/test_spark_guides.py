"""The how-to pages with Spark run as they stand there, and print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.submitted import without_the_venv
from tests.support import guides


@pytest.mark.nightly
@pytest.mark.parametrize("page", guides.WITH_SPARK)
def test_a_page_with_spark_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    guides.run(page, tmp_path, without_the_venv(tmp_path))
