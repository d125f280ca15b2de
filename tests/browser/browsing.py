"""Starts Chromium, and the page of a log as `commitlog ui` serves it."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.support.commands import COMMAND


@contextmanager
def chromium(directory: Path) -> Iterator[webdriver.Chrome]:
    """Yield a browser whose profile and downloads are below a directory.

    Raises:
        FileNotFoundError: it is not installed.
    """
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        raise FileNotFoundError("Chromium and its driver are needed: make test-ui installs them")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    profile, downloads = directory / "profile", directory / "downloads"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(driver)) as started:
        started.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
        started.downloads = downloads  # type: ignore[attr-defined]
        yield started


@contextmanager
def served(root: str, *options: str) -> Iterator[str]:
    """Yield the address that the command prints."""
    command = [*COMMAND, "ui", root, "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def look(browser: webdriver.Chrome, scheme: str, width: int, height: int = 900) -> None:
    """Give the page a colour scheme, and a size in pixels."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
