"""The built site in a browser: links, console, requests, and its width on a phone and a desktop."""

from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
WINDOWS = [(390, "dark"), (1280, "light")]
FITS = "document.documentElement.scrollWidth <= innerWidth"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages():
    """All pages that the build has made; the report of results/ is tested as a report."""
    assert (SITE / "index.html").is_file(), "there is no site to test: run make docs first"
    found = {path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")}
    found -= {"404.html", "results/reproduce/report.html"}
    assert len(found) > 100
    return sorted(found)


@pytest.fixture(scope="module")
def visited(browser, pages):
    """What the browser found on every page, at both widths."""
    from playwright.sync_api import TimeoutError

    problems, links, ids = [], {}, {}
    view = browser.new_page()
    name = ""

    def note(what):
        problems.append(f"{name}: {what}")

    view.on("console", lambda m: m.type in ("error", "warning") and note(m.text))
    view.on("pageerror", note)
    view.on("request", lambda request: is_foreign(request.url) and note(f"asks {request.url}"))
    for name in pages:
        view.goto(f"{SITE.as_uri()}/{name}")
        for width, scheme in WINDOWS:
            view.set_viewport_size({"width": width, "height": 800})
            view.emulate_media(color_scheme=scheme)
            try:  # the navigation moves when the width changes
                view.wait_for_function(FITS, timeout=2000)
            except TimeoutError:
                note(f"is wider than {width} pixels")
        if view.evaluate("[...document.images].some(i => i.complete && !i.naturalWidth)"):
            note("has a picture that is not shown")
        links[name] = view.evaluate("[...document.links].map(link => link.href)")
        ids[name] = set(view.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)"))
    view.close()
    return problems, links, ids


def is_foreign(url):
    return not url.startswith(("file:", "data:", "blob:", "about:"))


def test_every_page_fits_and_loads_nothing_from_other_hosts(visited):
    assert not visited[0], "\n".join(visited[0])


def test_every_internal_link_leads_to_a_page_and_a_place_on_it(visited):
    _, links, ids = visited
    broken = []
    for page, targets in links.items():
        for target in targets:
            if is_foreign(target):
                continue
            url, place = urldefrag(target)
            file = Path(unquote(url.removeprefix("file://")))
            name = file.relative_to(SITE).as_posix() if file.is_relative_to(SITE) else ""
            if not file.is_file() or (place and name in ids and unquote(place) not in ids[name]):
                broken.append(f"{page}: {target}")
    assert not broken


def test_every_page_can_be_reached_from_the_first(visited):
    """Also those that the navigation does not list."""
    links = visited[1]
    reached, ahead = set(), ["index.html"]
    while ahead:
        name = ahead.pop()
        if name in links and name not in reached:
            reached.add(name)
            files = (
                urldefrag(target)[0].removeprefix(f"{SITE.as_uri()}/") for target in links[name]
            )
            ahead += map(unquote, files)
    assert reached == set(links)


def test_the_search_finds_a_page_without_a_server(browser):
    view = browser.new_page()
    view.goto(f"{SITE.as_uri()}/index.html")
    view.keyboard.press("/")
    view.keyboard.type("whitening")
    view.locator(".md-search-result__item").first.wait_for()
    assert "Whitening" in view.locator(".md-search-result").inner_text()
    view.close()


def test_formulas_are_shown_as_mathml(browser):
    view = browser.new_page()
    view.goto(f"{SITE.as_uri()}/math.html")
    assert view.locator("math").count() > 50
    assert view.locator("math").first.bounding_box()["width"] > 5
    assert "\\frac" not in view.locator("article").inner_text()
    view.close()
