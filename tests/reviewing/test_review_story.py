"""Whole reviews in a real browser: image files, the command, the server, the files afterwards."""

import json
import shutil

import numpy as np
import pytest

from infoshot import labelling, review
from tests.labelling.commands import run as run_command
from tests.reviewing.client import Client
from tests.reviewing.page_driver import focused_id, shown_ids, wait_for
from tests.reviewing.story import (
    N_HARD,
    N_PHOTOS,
    NONE,
    SECONDS,
    Keyboard,
    audited_number,
    check_image_folder,
    check_labels,
    check_statement,
    class_keys,
    focused_photo,
    label_photos,
    name_of,
    read_answers,
    read_log,
    reader,  # noqa: F401 - a fixture
    truth_of,
    wait_saved,
    wait_solved,
)

N_ANSWERED, N_REJECTED, N_AUDITED = 30, 2, 40
GOAL = "The goal of 90 % is reached."
COVERED = """
    [0.01, 0.2, 0.4, 0.6, 0.8, 0.99].every((x) => [0.01, 0.2, 0.4, 0.6, 0.8, 0.99].every((y) =>
        !!document.elementFromPoint(x * innerWidth, y * innerHeight)?.closest("#audit, #toasts")))
"""
HIDDEN = """
    [...document.body.children].every((part) => part.inert || !part.checkVisibility()
        || part.id === "audit" || !part.textContent.includes("%") && !part.querySelector("img"))
"""


@pytest.fixture(scope="module")
def labelled(browser, tmp_path_factory):
    """A run that all tests copy; not made if there is no browser."""
    return label_photos(tmp_path_factory.mktemp("story"))


@pytest.fixture
def run(labelled, tmp_path):
    return shutil.copytree(labelled, tmp_path / "run")


@pytest.fixture
def url(run):
    with review(run, open_browser=False) as opened:
        yield opened.url


def answer_suggested(page, keys):
    """Answer photos with the truth; reject the first owls and pass by the others."""
    clicked, corrected = {}, 0
    while len(clicked) < N_ANSWERED:
        number, name, shown = focused_photo(page)
        truth = truth_of(name)
        if truth != "owl":
            page.keyboard.press("Enter" if shown == truth else keys[truth])
            clicked[name] = truth
            corrected += shown != truth
        elif list(clicked.values()).count(NONE) < N_REJECTED:
            page.keyboard.press("x")
            clicked[name] = NONE
        else:
            page.keyboard.press("ArrowRight")
        wait_for(page, f"document.activeElement.itemId !== {number}", SECONDS)
    assert corrected == N_HARD
    return clicked


def draw_around_left_half(page, url):
    """Draw a lasso around the left half of the map; return the numbers of the photos in it."""
    page.locator(".map-canvas").wait_for()
    wait_for(page, lambda: Client(url).get("/api/state").json()["projection"] == "tsne", SECONDS)
    page.get_by_text("Similar photos lie close together").wait_for()
    page.locator(".map-legend li").first.wait_for()
    box = page.locator(".map-canvas").bounding_box()
    corners = [(0.01, 0.01), (0.5, 0.01), (0.5, 0.99), (0.01, 0.99), (0.01, 0.03)]
    for step, (x, y) in enumerate(corners):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=4)
        if step == 0:
            page.mouse.down()
    page.mouse.up()
    places = np.frombuffer(Client(url).get("/api/map").body, "<f4").reshape(-1, 2)
    assert abs(places[:, 0]).min() > 0.001  # none on the line
    return np.flatnonzero(places[:, 0] < 0).tolist()


def label_lasso_and_undo(page, run, url, keys):
    before, n_before = read_answers(run), len(read_log(run))
    page.get_by_role("button", name="Map").click()
    inside = draw_around_left_half(page, url)
    assert 20 < len(inside) < N_PHOTOS - 20
    page.get_by_text(f"{len(inside)} photos selected", exact=True).wait_for()
    page.keyboard.press(keys["dog"])
    wait_for(page, lambda: len(read_log(run)) == n_before + 1, SECONDS)
    names = {name_of(url, number) for number in inside}
    entry, after = read_log(run)[-1], read_answers(run)
    assert entry["action"] == "label"
    assert {name for name in after if after[name] != before.get(name)} <= names
    assert {after[name] for name in names} == {"dog"}
    assert {name: after[name] for name in after if name not in names} == {
        name: before[name] for name in before if name not in names
    }
    page.keyboard.press("u")
    wait_for(page, lambda: len(read_log(run)) == n_before + 2, SECONDS)
    assert read_log(run)[-1]["action"] == "undo"
    assert read_answers(run) == before


def add_owl(page, run, url):
    """Add a class with one photo, then give it to all others in one action; return their names."""
    page.get_by_role("button", name="All photos").click()
    page.get_by_label("Search by file name").fill("owl")
    wait_for(page, "document.querySelector('.view-count').textContent === '8'", SECONDS)
    page.locator(".cell:not(.answered)").first.click()
    names = [focused_photo(page)[1]]
    page.get_by_role("button", name="Add a class").click()
    page.get_by_label("Name of the new class").fill("owl")
    page.get_by_label("Give it to the photo with the focus").check()
    page.get_by_role("button", name="Add", exact=True).click()
    wait_for(page, lambda: read_answers(run).get(names[0]) == "owl", SECONDS)
    wait_solved(page, run, url)
    page.get_by_label("Status").select_option("unanswered")
    wait_for(page, "document.querySelector('.view-count').textContent === '5'", SECONDS)
    wait_for(
        page, "document.querySelectorAll('.cell:not(.empty):not([hidden])').length === 5", SECONDS
    )
    names += page.locator(".cell:visible .cell-name").all_inner_texts()
    page.locator(".cell").first.click()
    page.keyboard.press("Control+a")
    page.keyboard.press(class_keys(page)["owl"])
    wait_for(page, lambda: len(read_log(run)[-1]["changes"]) == len(names) - 1, SECONDS)
    return names


def audit_blind(page, url, n_photos, answer):
    """Answer photos of the audit with the truth, and see that nothing on the page gives it away."""
    audited, answers = {}, set()
    for _ in range(n_photos):
        number = audited_number(page)
        name = name_of(url, number)
        answers.add(page.locator(".audit-answers").evaluate("(part) => part.outerHTML"))
        assert page.evaluate(COVERED)
        assert page.evaluate(HIDDEN)
        assert name not in page.locator("#audit").evaluate("(part) => part.outerHTML")
        audited[name] = truth_of(name)
        answer(audited[name])
        image = f"document.querySelector('#audit .stage-image')?.src.includes('/{number}?')"
        wait_for(page, f"!{image}", SECONDS)
    assert len(answers) == 1  # the buttons do not depend on the photo
    return audited


def finish(page):
    page.get_by_role("button", name="Finish").click()
    page.get_by_label("Image folder").check()
    page.get_by_role("button", name="Write the files").click()
    sentence = page.locator(".finish-sentence").inner_text()
    page.get_by_role("button", name="Done").click()
    return sentence


def test_a_review_from_photos_to_files(reader, run, url):  # noqa: F811
    page = reader().open(url)
    keys = class_keys(page)
    clicked = answer_suggested(page, keys)
    wait_solved(page, run, url)
    assert read_answers(run) == clicked
    label_lasso_and_undo(page, run, url, keys)
    clicked |= dict.fromkeys(add_owl(page, run, url), "owl")
    wait_solved(page, run, url)
    assert read_answers(run) == clicked
    page.get_by_label("Goal").fill("90")
    page.get_by_label("Goal").press("Enter")
    wait_for(page, lambda: read_log(run)[-1]["action"] == "goal", SECONDS)
    page.get_by_role("button", name="All photos").click()
    page.locator("#enough").get_by_role("button", name="udit").click()
    keys = class_keys(page)
    audited = audit_blind(page, url, N_AUDITED, lambda truth: page.keyboard.press(keys[truth]))
    assert not audited.keys() & clicked.keys()
    page.keyboard.press("Escape")
    page.locator("#enough").get_by_text(GOAL).wait_for()
    wait_saved(page)
    sentence = finish(page)
    found = check_labels(run, clicked, audited)
    check_image_folder(run, found)
    check_statement(run, sentence, N_AUDITED)
    assert not {image.path for image in labelling.suggest(run, n=20).images} & {
        row["path"] for row in found.values() if row["reason"] == "given"
    }
    assert run_command("audit", run).exit_code == 0


def test_on_a_phone(reader, run, url):  # noqa: F811
    page = reader(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True).open(url)

    def stays_in_width():
        wide = "[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"
        return page.evaluate(wide) == [360] * 3

    clicked, current = {}, "document.querySelector('.cell[tabindex=\"0\"]').itemId"
    for _ in range(4):
        number = page.evaluate(current)
        name = name_of(url, number)
        clicked[name] = truth_of(name) if truth_of(name) != "owl" else NONE
        button = "None" if clicked[name] == NONE else clicked[name]
        page.locator("#actions").get_by_role("button", name=button, exact=True).tap()
        wait_for(page, f"{current} !== {number}", SECONDS)
        assert stays_in_width()
    wait_saved(page)
    assert read_answers(run) == clicked
    page.tap("#open-side")
    assert stays_in_width()
    page.get_by_role("button", name="Doubtful").tap()
    wait_for(page, "document.body.dataset.view === 'doubtful' && !document.body.dataset.drawer",
             SECONDS)  # fmt: skip
    wait_solved(page, run, url)
    page.tap("#open-enough")
    page.locator("#enough").get_by_role("button", name="udit").tap()
    audited = audit_blind(
        page, url, 5,
        lambda truth: page.locator("#audit").get_by_role(
            "button", name=truth if truth != "owl" else "None of the classes").tap(),
    )  # fmt: skip
    assert stays_in_width()
    audited = {name: NONE if truth == "owl" else truth for name, truth in audited.items()}
    page.get_by_role("button", name="Leave", exact=True).tap()
    wait_saved(page)
    page.tap("#open-enough")
    assert stays_in_width()
    page.get_by_role("button", name="Finish").tap()
    page.get_by_role("button", name="Write the files").tap()
    page.locator(".finish-sentence").wait_for()
    assert stays_in_width()
    page.get_by_role("button", name="Done").tap()
    check_labels(run, clicked, audited)


def test_with_the_keyboard_only(reader, run, url):  # noqa: F811
    page = reader().open(url)
    page.evaluate("document.activeElement.blur()")
    keys, user = class_keys(page), Keyboard(page)
    user.tab_to("Doubtful")
    user.press("Enter")
    user.wait("document.activeElement.matches('.cell:not(.empty)')")
    first, name, _ = focused_photo(page)
    user.press(keys["dog"])
    user.wait(f"document.activeElement.itemId !== {first}")
    chosen = shown_ids(page)[1:5]
    user.press("Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight")
    assert page.locator(".cell.chosen").count() == 4
    user.press(keys["eel"])
    wait_for(page, lambda: len(read_log(run)) == 2, SECONDS)
    names = {name_of(url, number) for number in chosen}
    assert read_answers(run) == {name: "dog", **dict.fromkeys(names, "eel")}
    user.press("u")
    wait_for(page, lambda: len(read_log(run)) == 3, SECONDS)
    assert read_answers(run) == {name: "dog"}
    user.wait(f"{json.dumps(chosen)}.includes(document.activeElement.itemId)")
    for key, inside in (
        ("?", ["Tab", "Tab"]),
        ("Space", ["ArrowRight", "ArrowLeft"]),
        ("/", ["o", "Escape"]),
    ):
        before = focused_id(page)
        page.keyboard.press(key)
        user.wait("document.querySelector('dialog[open]')?.contains(document.activeElement)")
        user.press(*inside, "Escape")
        user.wait("!document.querySelector('dialog[open]')")
        user.wait(f"document.activeElement.itemId === {before}")
    user.tab_to("History")
    user.press("Enter")
    user.wait("!!document.querySelector('dialog[open] .entry')")
    user.press("Escape")
    user.wait("document.activeElement.id === 'history'")
    user.tab_to("Goal")
    user.press("Control+a", "9", "0", "Enter")
    wait_for(page, lambda: read_log(run)[-1]["action"] == "goal", SECONDS)
    wait_solved(page, run, url)
    user.tab_to("udit")
    page.keyboard.press("Enter")
    truths = {"owl": "x", **keys}
    audited = audit_blind(page, url, 3, lambda truth: user.press(truths[truth]))
    user.press("Escape")
    user.tab_to("Finish")
    page.keyboard.press("Enter")
    user.wait("document.querySelector('dialog[open]')?.contains(document.activeElement)")
    page.keyboard.press("Enter")
    wait_for(page, "!!document.querySelector('.finish-sentence')", SECONDS)
    user.wait("document.activeElement.innerText.startsWith('Done')")
    user.press("Enter")
    user.wait("!document.querySelector('dialog[open]')")
    check_labels(run, {name: "dog"}, {n: NONE if t == "owl" else t for n, t in audited.items()})


def test_two_pages_see_each_other_and_do_not_overwrite(reader, run, url):  # noqa: F811
    windows = reader()
    first = windows.open(url, "#view=all")
    second = windows.open(url, "#view=all")
    apart = windows.open(url, "#view=all", without_events=True)  # as on a slow connection
    number, name, _ = focused_photo(first)
    cell = f"[...document.querySelectorAll('.cell')].find((c) => c.itemId === {number})"
    first.bring_to_front()
    first.keyboard.press(class_keys(first)["dog"])
    wait_saved(first)
    wait_for(second, f"{cell}.getAttribute('aria-label').includes('dog, answered')", SECONDS)
    apart.bring_to_front()
    assert not apart.evaluate(f"{cell}.classList.contains('answered')")
    assert focused_id(apart) == number
    apart.keyboard.press(class_keys(apart)["eel"])
    apart.get_by_role("heading", name="Someone else answered differently").wait_for()
    assert apart.get_by_label("Theirs: dog").is_checked()
    assert not apart.get_by_label("Mine: eel").is_checked()
    assert read_answers(run) == {name: "dog"}
    assert len(read_log(run)) == 1
    apart.get_by_role("button", name="Use mine").click()
    wait_for(apart, lambda: read_answers(run) == {name: "eel"}, SECONDS)
    wait_for(second, f"{cell}.getAttribute('aria-label').includes('eel, answered')", SECONDS)


def test_answers_wait_for_the_server(reader, run):  # noqa: F811
    with review(run, open_browser=False) as opened:
        page = reader().open(opened.url)
        keys = class_keys(page)
        _, first, _ = focused_photo(page)
        page.keyboard.press(keys["cat"])
        wait_saved(page)
    _, second, _ = focused_photo(page)
    page.keyboard.press(keys["dog"])
    page.get_by_role("alert").filter(has_text="1 answer is kept here").wait_for()
    assert read_answers(run) == {first: "cat"}
    with review(run, open_browser=False) as again:
        assert again.url == opened.url
        wait_for(page, lambda: read_answers(run) == {first: "cat", second: "dog"}, SECONDS)
        wait_saved(page)
        wait_for(page, "document.getElementById('banner').hidden", SECONDS)
        page.get_by_text("All answers are saved.").wait_for()


def test_a_review_ends_also_if_the_connection_is_lost_meanwhile(reader, run, url):  # noqa: F811
    page = reader().open(url, without_events=True)
    page.get_by_role("button", name="Finish").click()
    page.get_by_role("button", name="Write the files").click()
    wait_for(page, lambda: "statement" in read_review(run), SECONDS)
    page.unroute("**/api/events*")
    page.locator(".finish-sentence").wait_for()


def read_review(run):
    return json.loads((run / "run.json").read_text()).get("review", {})


def test_files_that_cannot_be_written_are_named(reader, run, url):  # noqa: F811
    (run / "imagefolder").mkdir()
    (run / "imagefolder" / "mine.txt").write_text("not to be replaced")
    page = reader().open(url)
    page.get_by_role("button", name="Finish").click()
    page.get_by_label("Image folder").check()
    page.get_by_role("button", name="Write the files").click()
    page.locator(".finish [role=status]").filter(has_text="imagefolder: ").wait_for()
    assert page.get_by_role("button", name="Write the files").is_enabled()
    assert (run / "imagefolder" / "mine.txt").read_text() == "not to be replaced"
    shutil.rmtree(run / "imagefolder")
    page.get_by_role("button", name="Write the files").click()
    page.locator(".finish-sentence").wait_for()
    assert len(list((run / "imagefolder").rglob("*.png"))) == N_PHOTOS
