"""The page alone, in a real browser, against a server in memory."""

import re

import pytest

from tests.reviewing.fake_pool import HOSTILE_NAME, NONE, FakePool
from tests.reviewing.fake_server import STATIC
from tests.reviewing.page_driver import READY, answers, focused_id, shown_ids, wait_for

NAME_OF_FOCUS = """
    (document.activeElement.getAttribute("aria-label") || document.activeElement.innerText)
        .split("\\n")[0]
"""


def test_only_visible_items_are_requested(open_page, fake_server):
    fake_server.renew(FakePool(100_000))
    page = open_page("#view=all")
    page.wait_for_timeout(300)
    assert len([path for path in fake_server.paths if path.startswith("/api/")]) == 4
    assert len([path for path in fake_server.paths if path.startswith("/image/")]) < 40
    fake_server.paths.clear()
    page.evaluate("document.getElementById('grid').scrollTop = 1e9")
    wait_for(
        page, "[...document.querySelectorAll('.cell:not(.empty)')].some((c) => c.itemId === 99999)"
    )
    asked = [path for path in fake_server.paths if path.startswith("/api/items")]
    numbers = [int(n) for path in asked for n in path.partition("=")[2].split(",")]
    assert len(asked) == 1
    assert len(numbers) < 60
    assert min(numbers) > 99_900
    assert page.locator(".cell").count() < 80


def test_keys_answer_and_the_focus_moves_on(open_page, fake_server):
    page = open_page()
    first, second, third, fourth = shown_ids(page)[:4]
    assert focused_id(page) == first
    page.keyboard.press("Enter")
    page.keyboard.press("2")
    page.keyboard.press("x")
    page.keyboard.press("s")
    wait_for(page, lambda: len(fake_server.pool.log) == 4)
    sent = [(body["action"], body["ids"], body["label"]) for body in answers(fake_server)]
    assert sent == [
        ("accept", [first], fake_server.pool.item(first)["predicted"]),
        ("label", [second], "dog"),
        ("reject", [third], ""),
        ("skip", [fourth], ""),
    ]
    assert fake_server.pool.answers[third] == NONE
    assert focused_id(page) == shown_ids(page)[4]
    cell = page.locator(".cell").nth(1)
    assert "dog, answered" in cell.get_attribute("aria-label")
    page.keyboard.press("u")
    page.keyboard.press("Control+z")
    wait_for(page, lambda: third not in fake_server.pool.answers)
    wait_for(page, f"document.activeElement.itemId === {third}")
    assert fake_server.pool.answers[second] == "dog"


def test_a_key_that_is_held_answers_once(open_page, fake_server):
    page = open_page()
    page.keyboard.down("Enter")
    page.keyboard.down("Enter")
    page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    page.wait_for_timeout(150)
    assert len(answers(fake_server)) == 1


def test_a_range_is_answered_and_undone_at_once(open_page, fake_server):
    page = open_page("#view=all")
    page.locator(".cell").nth(1).click()
    page.locator(".cell").nth(6).click(modifiers=["Shift"])
    page.locator(".cell").nth(3).click(modifiers=["Control"])
    assert page.locator(".cell.chosen").count() == 5
    assert "5 photos selected" in page.locator("#actions").inner_text()
    page.keyboard.press("3")
    wait_for(page, lambda: len(fake_server.pool.log) == 1)
    assert sorted(fake_server.pool.answers) == [1, 2, 4, 5, 6]
    assert set(fake_server.pool.answers.values()) == {"horse"}
    assert focused_id(page) == 7
    page.keyboard.press("u")
    wait_for(page, lambda: not fake_server.pool.answers)
    wait_for(page, "!document.querySelector('.cell.answered')")


def test_large_bulk_asks_once_and_keeps_answers(open_page, fake_server):
    fake_server.renew(FakePool(1200))
    fake_server.pool.answer("label", [0, 700], "ship", client="other")
    page = open_page("#view=all")
    page.keyboard.press("Control+a")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Yes, all 1,198").click()
    wait_for(page, lambda: len(fake_server.pool.log) == 2)
    assert len(fake_server.pool.answers) == 1200
    assert fake_server.pool.answers[0] == fake_server.pool.answers[700] == "ship"
    page.keyboard.press("u")
    wait_for(page, lambda: len(fake_server.pool.answers) == 2)


def test_filters_search_and_sort(open_page, fake_server):
    page = open_page("#view=all")
    page.get_by_label("Status").select_option("unsure")
    wait_for(page, "!!document.querySelector('.mark-unsure')")
    page.wait_for_timeout(100)
    assert all(fake_server.pool.status(i) == "unsure" for i in shown_ids(page) if i is not None)
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_label("Search by file name").fill("0012")
    wait_for(page, "document.querySelector('.view-count').textContent === '11'")
    assert shown_ids(page)[0] == 12
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_label("Confidence from, in percent").fill("90")
    fake_server.pool.send("enough", fake_server.pool.enough())  # redraws; what is typed stays
    page.wait_for_timeout(200)
    page.get_by_label("Confidence from, in percent").press("Enter")
    expected = int((fake_server.pool.confidence >= 0.9).sum())
    wait_for(page, f"document.querySelector('.view-count').textContent === '{expected}'")
    page.get_by_label("Sort by").select_option("confidence")
    page.get_by_role("button", name="Reverse the order").click()
    best = int(max(range(400), key=lambda i: (fake_server.pool.confidence[i], i)))
    wait_for(page, f"document.querySelector('.cell').itemId === {best}")
    page.reload()
    wait_for(page, f"document.querySelector('.cell')?.itemId === {best}")


def test_hostile_names_are_text(open_page, fake_server):
    hostile = "<img src=x onerror=alert(1)>"
    fake_server.renew(FakePool(20, (hostile, "dog")))
    page = open_page("#view=all")
    assert page.locator(".cell-name").nth(3).inner_text() == HOSTILE_NAME
    page.locator(".cell").nth(3).dblclick()
    assert page.locator(".preview-name").inner_text() == HOSTILE_NAME
    assert hostile in page.locator("dialog .scores").inner_text()
    page.keyboard.press("1")
    page.keyboard.press("Escape")
    page.click("#history")
    page.get_by_text(f"1 photo labelled {hostile}").wait_for()
    assert page.locator("img[src='x']").count() == 0


def test_keyboard_only(open_page, fake_server):
    page = open_page()
    page.evaluate("document.activeElement.blur()")
    names = []
    for _ in range(100):
        page.keyboard.press("Tab")
        names.append(page.evaluate(NAME_OF_FOCUS))
    names = names[names.index("Skip to the photos") :]
    order = [
        "Skip to the photos",
        "History",
        "Suggested next",
        "cat",
        "Search by file name",
        "Sort by",
    ]
    places = [next(k for k, name in enumerate(names) if name.startswith(text)) for text in order]
    grid = next(k for k, name in enumerate(names) if name.startswith("photo-"))
    accept = names.index("Accept")
    assert places == sorted(places)
    assert places[-1] < grid < accept < names.index("Audit: about 36 more")
    page.locator(".cell").first.focus()
    for key in ("ArrowRight", "ArrowDown", "Home", "End"):
        page.keyboard.press(key)
    assert (
        focused_id(page) == shown_ids(page)[-1] == fake_server.pool.view({"view": "suggested"})[-1]
    )
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.wait_for_selector("dialog.preview[open]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("4")
    wait_for(page, lambda: len(fake_server.pool.log) == 1)
    assert page.locator(".preview-place").inner_text().startswith("3 of")
    page.keyboard.press("Escape")
    wait_for(page, lambda: focused_id(page) == shown_ids(page)[2])
    page.keyboard.press("/")
    page.keyboard.type("hor")
    page.keyboard.press("Enter")
    wait_for(page, lambda: answers(fake_server)[-1]["label"] == "horse")
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keys").wait_for()


def test_class_keys_can_be_changed(open_page, fake_server):
    page = open_page()
    page.keyboard.press("?")
    page.get_by_label("Key of horse").press("h")
    page.keyboard.press("Escape")
    page.keyboard.press("h")
    page.get_by_text("Saved").wait_for()
    assert answers(fake_server)[-1]["label"] == "horse"
    page.reload()
    page.wait_for_selector(".cell:not(.empty)")
    page.keyboard.press("h")
    wait_for(page, lambda: len(answers(fake_server)) == 2)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phone_width(open_page, theme):
    page = open_page("#view=all", width=320, height=640, theme=theme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.search(r"\d+", ground)[0]) < 60) == (theme == "dark")
    for button in page.locator("#actions button:visible").all():
        assert button.bounding_box()["height"] >= 36
    for view in ("By class", "Groups", "Map", "Doubtful"):
        page.click("#open-side")
        page.get_by_role("button", name=view).click()
        wait_for(page, f"!!document.querySelector('{READY}')")
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        assert page.evaluate("document.getElementById('grid').scrollWidth") <= 320
    page.click("#open-enough")
    page.get_by_role("button", name="Finish").wait_for()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "open-enough"


def _imports(name):
    """The modules that a module needs before it runs."""
    return re.findall(r'^import [^"]*"\./([\w.]+)"', (STATIC / name).read_text(), re.MULTILINE)


def test_modules_of_the_first_screen_are_loaded_together():
    needed, waiting = set(), ["main.js"]
    while waiting:
        new = set(_imports(waiting.pop())) - needed
        needed |= new
        waiting += new
    page = (STATIC / "index.html").read_text()
    assert set(re.findall(r'modulepreload" href="/static/([\w.]+)"', page)) == needed
    assert not needed & {"map_view.js", "groups.js", "audit.js", "history.js", "finish.js"}


def test_files_of_the_page_are_readable():
    for file in STATIC.iterdir():
        if file.suffix in (".js", ".css"):
            assert len(file.read_text().splitlines()) <= 400, file.name
        assert "innerHTML" not in file.read_text(), file.name
        assert not re.search(r"https?://(?!www\.w3\.org/)", file.read_text()), file.name
