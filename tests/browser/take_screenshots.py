"""Takes the pictures of the page in docs/images: run by `.venv/bin/python -m tests.browser.take_screenshots`."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from pyspark_commitlog import CommitLog, Producer
from tests.browser.browsing import chromium, look, served

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH = 1000
CITIES = ["Berlin", "Lisbon", "Oslo", "Porto", "Vienna"]


def fill(log: CommitLog) -> None:
    """Make the topics and groups that the pictures show; the records are the same each time."""
    random = Random(56)
    log.create_topic("clicks", 4, {"segment.bytes": 16_384, "retention.bytes": 50_000})
    log.create_topic("orders", schema="user STRING, city STRING, price DOUBLE", key="user")
    for number in range(24):
        with Producer(log.url) as producer:
            for _ in range(20 + 10 * (number % 4)):
                send_click(producer, random, number % 3)
            producer.send("orders", {"user": f"u{number}", "city": random.choice(CITIES), "price": number / 2})
        if number < 20:
            log.topic("clicks").maintain()
    log.topic("clicks").alter({"retention.bytes": 30_000})
    log.groups.commit("reports", {"clicks": {0: 50, 1: 50, 2: 50}, "orders": {0: 20}})


def send_click(producer: Producer, random: Random, partition: int) -> None:
    """Send a record of JSON that hardly compresses."""
    value = {
        "user": {"id": random.randrange(10_000), "city": random.choice(CITIES)},
        "path": f"/item/{random.randrange(1000)}",
        "session": random.randbytes(36).hex(),
    }
    headers = [("trace", random.randbytes(8).hex().encode())]
    producer.send("clicks", json.dumps(value).encode(), key=b"u%d" % value["user"]["id"], partition=partition, headers=headers)  # type: ignore[index]  # fmt: skip


class Camera:
    """Opens views of the page, and takes pictures of parts of them."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self._browser = browser
        browser.get(url)
        look(browser, "light", WIDTH)

    def open(self, view: str, until: str) -> None:
        """Open a view, and wait until a selector finds something."""
        self._browser.execute_script("location.hash = arguments[0]", view)
        self.wait(lambda: bool(self._browser.find_elements(By.CSS_SELECTOR, until)) and not self._text("#status"))

    def wait(self, until: Callable[[], bool], seconds: float = 30) -> None:
        """Wait until something holds."""
        WebDriverWait(self._browser, seconds).until(lambda _: until())

    def _text(self, selector: str) -> str:
        return self._browser.find_element(By.CSS_SELECTOR, selector).text

    def has(self, text: str) -> bool:
        """Whether the page shows a text."""
        return text in self._text("main")

    def click(self, selector: str) -> None:
        """Click on the first element of a selector."""
        self._browser.find_element(By.CSS_SELECTOR, selector).click()

    def take(self, name: str, first: str, height: int) -> None:
        """Save the page from just above an element on, which an XPath finds."""
        top = self._browser.execute_script(
            "return arguments[0].getBoundingClientRect().top + scrollY", self._browser.find_element(By.XPATH, first)
        )
        clip = {"x": 0, "y": max(0, int(top) - 12), "width": WIDTH, "height": height, "scale": 1}
        options = {"format": "png", "clip": clip, "captureBeyondViewport": True}
        path = IMAGES / f"{name}.png"
        path.write_bytes(b64decode(self._browser.execute_cdp_cmd("Page.captureScreenshot", options)["data"]))
        print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    """Take all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as name:
        directory = Path(name)
        log = CommitLog(str(directory / "commitlog"))
        fill(log)
        with served(log.url) as url, chromium(directory) as browser:
            camera = Camera(browser, url)
            camera.open("#/topics", "table")
            camera.take("page-topics", "//h1", 270)
            camera.open(
                "#/topics/clicks?start=beginning&path=$.user.city = Oslo&limit=6&partition=1", ".records details"
            )
            camera.click(".records summary")
            camera.wait(lambda: camera.has("Header trace"))
            camera.take("page-records", "//h2[.='Records']", 700)
            camera.open("#/topics/clicks?limit=1", "svg.segments")
            camera.take("page-segments", "//h2[.='Segments and maintenance']", 760)
            camera.open("#/groups/reports", "polyline")
            for looks, offset in enumerate((60, 100, 130, 90, 180, 200), start=2):
                log.groups.commit("reports", {"clicks": {0: offset + 20, 1: offset + 10, 2: offset}})
                camera.wait(lambda looks=looks: camera.has(f"in {looks} looks"))  # type: ignore[misc]
            camera.take("page-lag", "//h2[.='Lag over time']", 330)


if __name__ == "__main__":
    main()
