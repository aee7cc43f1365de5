"""What browser tests of the page share: a server, an open page, and ways to wait."""

import time

import pytest

from tests.reviewing.fake_pool import FakePool
from tests.reviewing.fake_server import FakeServer

# A note in a hidden grid is not what the view shows: groups come later.
READY = ".cell:not(.empty), .group, #grid:not([hidden]) .empty-note:not([hidden])"


@pytest.fixture(scope="module")
def one_context(browser):
    """One for all tests of this file: the files of the page are read once."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(8000)
    yield context
    context.close()


@pytest.fixture(scope="module")
def one_fake_server():
    server = FakeServer()
    yield server
    server.stop()


@pytest.fixture
def fake_server(one_fake_server):
    one_fake_server.renew(FakePool())
    return one_fake_server


@pytest.fixture
def open_page(one_context, fake_server):
    """A function that opens the page; every error in the browser's console fails the test."""
    pages, problems = [], []

    def open_it(fragment="", *, width=1280, height=800, theme="light"):
        page = one_context.new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=theme)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error"
                and "Failed to load resource" not in message.text else None)  # fmt: skip
        page.on("dialog", lambda dialog: leave(dialog, problems))
        page.goto(fake_server.url + fragment)
        page.wait_for_selector("body[data-ready]")
        wait_for(page, f"!!document.querySelector('{READY}')")
        return page

    yield open_it
    for page in pages:
        page.evaluate("localStorage.clear()")
        page.close()
    assert problems == []


def leave(dialog, problems):
    """Leave the page in spite of unsaved answers; no other dialog is the browser's own."""
    if dialog.type != "beforeunload":
        problems.append(dialog.message)
    dialog.accept()


def answers(server):
    return [body for name, body in server.posted if name == "answers"]


def wait_for(page, condition, seconds=4):
    """Wait until a function, or an expression in the browser, is true.

    Playwright's own `wait_for_function` needs `eval`, which the page's policy forbids.
    """
    end = time.monotonic() + seconds
    while not (page.evaluate(condition) if isinstance(condition, str) else condition()):
        if time.monotonic() > end:
            raise AssertionError(f"it did not happen within {seconds} s: {condition}")
        page.wait_for_timeout(25)


def focused_id(page):
    return page.evaluate("document.activeElement.itemId ?? null")


def shown_ids(page):
    return page.evaluate("[...document.querySelectorAll('.cell')].map((c) => c.itemId)")
