"""The how-to pages with Spark, and the tutorials, run as they stand there, and print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.submitted import without_the_venv
from tests.support import guides


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", guides.WITH_SPARK)
def test_a_page_with_spark_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    guides.run(guides.HOW_TO / f"{page}.md", tmp_path, without_the_venv(tmp_path))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", guides.WALKED)
def test_a_tutorial_is_walked_in_order_and_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    guides.run(guides.TUTORIALS / f"{page}.md", tmp_path, without_the_venv(tmp_path))
