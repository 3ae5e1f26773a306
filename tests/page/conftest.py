"""One chromedriver for the whole run; an emulator and a browser of its own for each test."""

import pytest

from browser import Browser, Driver
from cloud import Emulator


@pytest.fixture(scope="session")
def driver():
    with Driver() as driver:
        yield driver


@pytest.fixture
def emulator(tmp_path):
    """Operations are over at once."""
    with Emulator(tmp_path, "--latency", "none", "--no-throttling") as emulator:
        yield emulator


@pytest.fixture
def windows(driver):
    """Opens browsers of a width and a height; all are closed with the test."""
    opened = []

    def window(width: int = 1280, height: int = 900) -> Browser:
        opened.append(Browser(driver, width, height))
        return opened[-1]

    yield window
    for browser in opened:
        browser.close()


@pytest.fixture
def page(windows, emulator):
    """The page of the emulator, as soon as it is live."""
    browser = windows()
    browser.open(emulator.url + "/")
    browser.wait("document.querySelector('#live').textContent === 'live'")
    return browser
