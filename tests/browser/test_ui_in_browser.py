"""The page in Chromium: what people see and press, and that axe finds nothing, in light and dark and on a phone."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from axe_selenium_python import Axe
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from pyspark_commitlog import CommitLog, Producer
from tests.browser.browsing import look
from tests.browser.conftest import EVIL

VIEWS = [
    "#/topics",
    "#/topics/clicks",
    "#/topics/orders",
    "#/topics/sealed",
    "#/groups",
    "#/groups/reports",
    "#/topics/none",
]
SCHEMES = ["light", "dark"]
WIDTHS = [1280, 390]


@pytest.fixture(autouse=True)
def _opened(browser: Chrome, url: str) -> None:
    look(browser, "light", 1280)
    browser.get("about:blank")
    browser.get(url)
    wait(browser, lambda: heading(browser) == "Topics")
    assert "token" not in browser.current_url
    complaints(browser)  # those of the test before


def wait(browser: Chrome, until: Callable[[], object]) -> None:
    WebDriverWait(browser, 20, ignored_exceptions=[Exception]).until(lambda _: until())


def heading(browser: Chrome) -> str:
    return browser.find_element(By.TAG_NAME, "h1").text


def go(browser: Chrome, view: str) -> None:
    name = {"#/topics": "Topics", "#/groups": "Groups"}.get(view) or view.partition("?")[0].rpartition("/")[2]
    browser.execute_script("location.hash = arguments[0]", view)
    wait(browser, lambda: heading(browser) == name and not browser.find_element(By.ID, "status").text)


def field(browser: Chrome, name: str) -> WebElement:
    return browser.find_element(By.NAME, name)


def places(browser: Chrome) -> list[str]:
    return [each.text for each in browser.find_elements(By.CSS_SELECTOR, ".records .place")]


def press(browser: Chrome, button: str) -> None:
    browser.find_element(By.XPATH, f"//button[normalize-space()='{button}']").click()


def complaints(browser: Chrome) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry for entry in found if entry["level"] == "SEVERE" and "404" not in entry["message"]]


def test_a_click_leads_to_a_topic_and_its_records_are_text(browser: Chrome) -> None:
    browser.find_element(By.LINK_TEXT, "clicks").click()
    wait(browser, lambda: heading(browser) == "clicks" and places(browser))
    evil = next(each for each in browser.find_elements(By.CSS_SELECTOR, "details") if "script" in each.text)
    evil.find_element(By.TAG_NAME, "summary").click()
    wait(browser, lambda: len(evil.find_elements(By.TAG_NAME, "pre")) == 3)
    assert [each.text for each in evil.find_elements(By.TAG_NAME, "pre")] == [EVIL] * 3
    assert browser.find_elements(By.CSS_SELECTOR, "main script, main img") == []
    assert browser.title == "clicks – commitlog"
    assert complaints(browser) == []


def test_a_column_of_a_typed_topic_is_text(browser: Chrome) -> None:
    go(browser, "#/topics/orders")
    cells = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "td.cell")]
    assert cells == ["ada", "1.5", EVIL]
    assert browser.title == "orders – commitlog"


def test_numbers_keep_their_digits_and_bytes_are_shown_in_hex(browser: Chrome) -> None:
    go(browser, "#/topics/clicks?partition=1")
    newest, before = browser.find_elements(By.CSS_SELECTOR, "details")[:2]
    for each in (newest, before):
        each.find_element(By.TAG_NAME, "summary").click()
    wait(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "details[open] pre")) == 4)
    shown = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "details[open] pre")]
    assert shown[1].startswith("00000000  ff 00")
    assert '"id": 12345678901234567890' in shown[3]
    Select(field(browser, "form")).select_by_value("hex")
    wait(browser, lambda: "7b 22 70 61 67 65" in browser.find_element(By.CSS_SELECTOR, ".records").text)


def test_seeking_filtering_and_paging(browser: Chrome) -> None:
    go(browser, "#/topics/clicks")
    Select(field(browser, "start")).select_by_value("offset")
    for name, text in (("at", "28"), ("partition", "1"), ("limit", "2")):
        field(browser, name).clear()
        field(browser, name).send_keys(text)
    field(browser, "limit").send_keys(Keys.ENTER)
    wait(browser, lambda: places(browser) == ["1:28", "1:29"])
    assert "partition=1" in browser.current_url
    press(browser, "Newer")
    wait(browser, lambda: places(browser) == ["1:30"])
    press(browser, "Older")
    wait(browser, lambda: places(browser) == ["1:28", "1:29"])
    field(browser, "filter").send_keys("key = 'k57'", Keys.ENTER)
    Select(field(browser, "start")).select_by_value("beginning")
    press(browser, "Show")
    wait(browser, lambda: places(browser) == ["1:28"])
    field(browser, "filter").send_keys(" OR", Keys.ENTER)
    wait(browser, lambda: "filter" in browser.find_element(By.CSS_SELECTOR, "main .fault").text)


def test_records_by_key_json_path_and_header(browser: Chrome) -> None:
    go(browser, "#/topics/clicks?start=beginning&key=k7&everywhere=on")
    assert places(browser) == ["1:3"]
    assert field(browser, "everywhere").is_selected()
    field(browser, "everywhere").click()
    press(browser, "Show")
    summary = "main p[role=status]"
    wait(browser, lambda: "default partitioner" in browser.find_element(By.CSS_SELECTOR, summary).text)
    go(browser, "#/topics/clicks")
    field(browser, "path").send_keys("$.page >= 58", Keys.ENTER)
    wait(browser, lambda: sorted(places(browser)) == ["0:29", "1:29"])
    field(browser, "path").clear()
    field(browser, "header").send_keys(f"{EVIL}", Keys.ENTER)
    wait(browser, lambda: "of 62 offsets" in browser.find_element(By.CSS_SELECTOR, summary).text)
    assert places(browser) == []  # what is before = is the name
    field(browser, "path").send_keys("page", Keys.ENTER)
    wait(browser, lambda: "begins with $" in browser.find_element(By.CSS_SELECTOR, "main .fault").text)


def test_an_address_that_is_none_is_an_error_on_the_page(browser: Chrome) -> None:
    browser.execute_script("location.hash = '#/topics/%E0%A4%A'")
    wait(browser, lambda: "is not allowed" in browser.find_element(By.CSS_SELECTOR, "main .fault").text)


def test_an_address_can_be_passed_on(browser: Chrome) -> None:
    go(browser, "#/topics/clicks?start=offset&at=3&partition=0&limit=1")
    assert places(browser) == ["0:3"]
    assert field(browser, "at").get_attribute("value") == "3"


def test_new_records_are_followed(browser: Chrome, log: CommitLog) -> None:
    go(browser, "#/topics/orders")
    Select(field(browser, "form")).select_by_value("json")
    before = len(places(browser))
    field(browser, "follow").click()
    with Producer(log.url) as producer:
        producer.send("orders", {"user": "late", "price": 2.0})
    wait(browser, lambda: len(places(browser)) == before + 1)
    assert "late" in browser.find_element(By.CSS_SELECTOR, ".records summary").text  # the newest is first


def test_what_is_shown_can_be_saved(browser: Chrome) -> None:
    go(browser, "#/topics/clicks?partition=0&limit=3")
    downloads: Path = browser.downloads  # type: ignore[attr-defined]
    for button, name in (("Save as CSV", "clicks.csv"), ("Save as JSON lines", "clicks.jsonl")):
        press(browser, button)
        wait(browser, (downloads / name).exists)
    head, *rows = list(csv.reader(StringIO((downloads / "clicks.csv").read_text())))
    assert head == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert [row[:2] for row in rows] == [["0", "28"], ["0", "29"], ["0", "30"]]
    assert rows[-1][4] == EVIL
    lines = [json.loads(line) for line in (downloads / "clicks.jsonl").read_text().splitlines()]
    assert [line["value"] for line in lines][-1] == EVIL
    assert json.loads(lines[0]["value"])["page"] == 56
    press(browser, "Save as Parquet")
    wait(browser, (downloads / "clicks.parquet").exists)
    table = pq.read_table(downloads / "clicks.parquet")
    assert table.column("offset").to_pylist() == [28, 29, 30]
    assert table.column("value")[2].as_py() == EVIL.encode()


def test_the_keyboard_alone_reaches_a_record(browser: Chrome) -> None:
    go(browser, "#/topics/clicks?limit=1&partition=0")
    for _ in range(30):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element.tag_name == "summary":
            break
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "details[open] pre"))


def test_groups_show_their_lag(browser: Chrome) -> None:
    browser.find_element(By.LINK_TEXT, "Groups").click()
    wait(browser, lambda: heading(browser) == "Groups")
    browser.find_element(By.LINK_TEXT, "reports").click()
    wait(browser, lambda: heading(browser) == "reports")
    assert "59 records" in browser.find_element(By.TAG_NAME, "main").text


def test_segments_are_drawn_to_scale_and_what_is_due_is_said(browser: Chrome) -> None:
    go(browser, "#/topics/sealed")
    wait(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "svg.segments")) == 2)
    bar = browser.find_element(By.CSS_SELECTOR, "svg.segments")
    shapes = bar.find_elements(By.TAG_NAME, "rect")
    widths = [float(each.get_attribute("width") or 0) for each in shapes]
    assert len(widths) == 5
    assert sum(widths) == pytest.approx(1000, abs=1)
    assert [each.get_attribute("class") for each in shapes] == ["segment due"] * 3 + ["segment"] + ["segment active"]
    assert (bar.get_attribute("aria-label") or "").startswith("Partition 0: 5 segments with ")
    (row, other) = browser.find_elements(By.XPATH, "//table[starts-with(caption, 'Maintenance of')]/tbody/tr")
    assert "delete 3 segments" in row.text
    assert "nothing is due" in other.text
    browser.find_element(By.XPATH, "//summary[.='Segments as a table']").click()
    table = browser.find_element(By.XPATH, "//table[caption='5 segments']")
    assert "sealed, due to be deleted" in table.text
    runs = browser.find_elements(By.XPATH, "//table[contains(caption, 'of maintenance that did something')]/tbody/tr")
    assert "settled 1 record" in runs[0].text
    assert complaints(browser) == []


def test_rates_come_with_the_second_look(browser: Chrome, log: CommitLog) -> None:
    go(browser, "#/topics/orders")
    assert "Rates come with the second look" in browser.find_element(By.CSS_SELECTOR, ".watch").text
    with Producer(log.url) as producer:
        producer.send("orders", {"user": "many", "price": 3.0})
    wait(browser, lambda: "records/s" in browser.find_element(By.CSS_SELECTOR, ".watch").text)
    text = browser.find_element(By.CSS_SELECTOR, ".watch").text
    assert float(text.partition("All partitions: ")[2].partition(" ")[0]) > 0
    cell = browser.find_element(By.XPATH, "//table[caption='1 partition']/tbody/tr/td[7]").text
    assert cell.endswith(" records/s")


def test_the_lag_of_a_group_is_drawn_over_time(browser: Chrome, log: CommitLog) -> None:
    go(browser, "#/groups/reports")
    chart = "figure svg"
    assert "59 records now" in (browser.find_element(By.CSS_SELECTOR, chart).get_attribute("aria-label") or "")
    log.groups.commit("reports", {"clicks": {0: 13}})
    browser.find_element(By.XPATH, "//summary[.='Lag as a table']").click()
    wait(
        browser, lambda: len(browser.find_elements(By.XPATH, "//table[starts-with(caption, 'Lag over')]/tbody/tr")) > 1
    )
    label = browser.find_element(By.CSS_SELECTOR, chart).get_attribute("aria-label") or ""
    assert label.startswith("Lag: 49 records now, at least 49, at most 59, in 2 looks")
    points = (browser.find_element(By.TAG_NAME, "polyline").get_attribute("points") or "").split()
    assert [point.partition(",")[0] for point in points] == ["0.0", "1000.0"]
    log.groups.commit("reports", {"clicks": {0: 3}})
    field(browser, "watch").click()
    assert complaints(browser) == []


def test_an_error_is_shown_as_the_library_has_it(browser: Chrome) -> None:
    go(browser, "#/topics/none")
    assert "unknown topic 'none'" in browser.find_element(By.CSS_SELECTOR, "main .fault").text


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_and_a_phone_s_width_suffices(browser: Chrome, view: str) -> None:
    for scheme in SCHEMES:
        for width in WIDTHS:
            look(browser, scheme, width)
            go(browser, view)
            for summary in browser.find_elements(By.TAG_NAME, "summary")[:1]:
                summary.click()
            wait(browser, lambda: "Loading" not in browser.find_element(By.TAG_NAME, "main").text)
            axe = Axe(browser)
            axe.inject()
            violations = axe.run()["violations"]
            assert violations == [], axe.report(violations)
            overflow = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
            assert overflow <= 0, (scheme, width)
            background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]


def test_nothing_is_loaded_from_elsewhere(browser: Chrome, url: str) -> None:
    go(browser, "#/topics/clicks")
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert len(loaded) > 5
    assert [each for each in loaded if not each.startswith(url.partition("?")[0])] == []
