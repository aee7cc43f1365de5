"""Photos and a run for stories in a real browser, and what is on the disk afterwards."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import save_checkpoint
from tests.labelling.commands import rows
from tests.labelling.commands import run as run_command
from tests.reviewing.client import Client
from tests.reviewing.page_driver import READY, leave, wait_for

CLASSES = ("cat", "dog", "eel")
N_OWLS = 8  # photos of a class without examples
N_HARD = 3  # cats that look more like eels
N_PHOTOS = 3 * 40 + N_OWLS
NONE = "(none)"
SECONDS = 60  # to wait at most; the machine may be busy


def make_photos(folder):
    """Write 6 examples of three classes, and 128 photos that are named by their class."""
    generator = np.random.default_rng(1)
    patterns = {name: generator.integers(0, 256, (6, 6, 3)) for name in (*CLASSES, "owl")}

    def save(pattern, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        noisy = pattern + generator.integers(-30, 31, pattern.shape)
        image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
        image.resize((40, 40), Image.Resampling.BICUBIC).save(path)

    between = 0.45 * patterns["cat"] + 0.55 * patterns["eel"]
    for name in CLASSES:
        for number in range(6):
            save(patterns[name], folder / "examples" / name / f"{number}.png")
        for number in range(40):
            pattern = between if name == "cat" and number < N_HARD else patterns[name]
            save(pattern, folder / "photos" / f"{name}{number}.png")
    for number in range(N_OWLS):
        save(patterns["owl"], folder / "photos" / f"owl{number}.png")
    torch.manual_seed(0)
    save_checkpoint(folder / "weights", "conv4", make_backbone("conv4").state_dict())


def label_photos(folder):
    """Label them with the command; return the folder of the run."""
    make_photos(folder)
    result = run_command(
        "label", folder / "examples", folder / "photos", "--out", folder / "run",
        "--backbone", folder / "weights", "--cache", folder / "cache",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return folder / "run"


def truth_of(name):
    """Return the class of a photo.

    >>> truth_of("photos/cat12.png")
    'cat'
    """
    return Path(name).stem.rstrip("0123456789")


def read_log(run):
    path = run / "review.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_answers(run):
    """Apply the log entry by entry; every entry must fit the answers before it."""
    answers = {}
    for number, entry in enumerate(read_log(run), 1):
        assert entry["n"] == number
        for path, before, after in entry["changes"]:
            name = Path(path).name
            assert answers.get(name) == before
            answers[name] = after
            if after is None:
                del answers[name]
    return answers


class Reader:
    """Opens pages of a review in one browser context; errors in the console are collected."""

    def __init__(self, context):
        self.context, self.problems = context, []
        context.set_default_timeout(1000 * SECONDS)

    def open(self, url, fragment="", *, without_events=False):
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda line: self.problems.append(line.text) if line.type == "error"
                and "Failed to load resource" not in line.text else None)  # fmt: skip
        page.on("dialog", lambda dialog: leave(dialog, self.problems))
        if without_events:
            page.route("**/api/events*", lambda route: route.abort())
        page.goto(url + fragment)
        wait_for(page, "!!document.body?.dataset.ready", SECONDS)
        wait_for(page, f"!!document.querySelector('{READY}')", SECONDS)
        return page


@pytest.fixture
def reader(browser):
    """A function that makes a reader with settings of the browser's context."""
    readers = []

    def make(**settings):
        settings = {"viewport": {"width": 1280, "height": 800}, **settings}
        readers.append(Reader(browser.new_context(**settings)))
        return readers[-1]

    yield make
    for each in readers:
        each.context.close()
    assert [each.problems for each in readers] == [[] for _ in readers]


def class_keys(page):
    """Return the key of each class, as the page shows them."""
    rows = "[...document.querySelectorAll('.class-row')]"
    shown = "[r.querySelector('.nav-name').textContent, r.querySelector('kbd').textContent]"
    return dict(page.evaluate(f"{rows}.map((r) => {shown})"))


def focused_photo(page):
    """Return number, name and shown label of the photo with the focus."""
    wait_for(page, "document.activeElement.matches('.cell:not(.empty)')", SECONDS)
    number, *texts = page.evaluate(
        "((c) => [c.itemId, c.parts.name.textContent, c.parts.label.textContent])"
        "(document.activeElement)"
    )
    return number, *texts


def wait_saved(page):
    wait_for(page, "document.getElementById('save').dataset.state === 'check'", SECONDS)


def wait_solved(page, run, url):
    """Wait until the labels contain all answers, on the disk and on the page."""

    def is_solved():
        state = Client(url).get("/api/state").json()
        facts = json.loads((run / "run.json").read_text())
        last = max(entry["n"] for entry in read_log(run) if entry["changes"])
        return state["solve"]["state"] == "idle" and facts["review"]["n_entries"] >= last

    wait_saved(page)
    wait_for(page, is_solved, SECONDS)
    wait_for(page, "document.querySelector('#solver button').dataset.state === 'idle'", SECONDS)


def audited_number(page):
    """Return the number of the photo that the audit asks for."""
    wait_for(page, "!!document.querySelector('#audit .stage-image.loaded')", SECONDS)
    source = page.locator("#audit .stage-image").get_attribute("src")
    return int(source.removeprefix("/image/").partition("?")[0])


def name_of(url, number):
    """Return the name of a photo from the server, where the page must not show it."""
    return Client(url).get(f"/api/items?ids={number}").json()["items"][0]["name"]


class Keyboard:
    """Presses keys; after each of them the focus must be somewhere, and seen."""

    FOCUS = """(() => {
        const part = document.activeElement;
        if (!part || part === document.body) return "the focus is lost";
        const box = part.getBoundingClientRect();
        const isInside = box.width && box.height && box.bottom > 0 && box.right > 0
            && box.top < innerHeight && box.left < innerWidth;
        if (!isInside) return "the focus is outside the window";
        const marked = part.closest(".cell")?.querySelector(".thumb") ?? part;
        const style = getComputedStyle(marked);
        const isMarked = style.outlineStyle !== "none" || style.boxShadow !== "none";
        return isMarked || part.tabIndex < 0 ? "" : "the focus has no mark";
    })()"""
    NAME = """
        (document.activeElement.getAttribute("aria-label") || document.activeElement.innerText
            || document.activeElement.labels?.[0]?.innerText || "").split("\\n")[0]
    """

    def __init__(self, page):
        self.page = page

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)
            self.check(key)

    def check(self, key):
        problem = self.page.evaluate(self.FOCUS)
        assert not problem, f"{problem} after {key} ({self.page.evaluate(self.NAME)})"

    def tab_to(self, name):
        """Press Tab; after the last part of the page it leaves it once, as in every browser."""
        n_left = 0
        for _ in range(120):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("document.activeElement === document.body"):
                n_left += 1
                assert n_left == 1, "the focus is lost"
                continue
            self.check("Tab")
            if name in self.page.evaluate(self.NAME):
                return
        raise AssertionError(f"Tab does not reach {name}")

    def wait(self, condition):
        wait_for(self.page, condition, SECONDS)
        self.check(condition)


def check_labels(run, clicked, audited):
    """Compare labels.csv, corrections.csv and the log with what was clicked."""
    answers = {**clicked, **audited}
    found = {Path(row["path"]).name: row for row in rows(run / "labels.csv")}
    assert len(found) == N_PHOTOS
    assert {name for name, row in found.items() if row["reason"] == "given"} == set(answers)
    for name, answer in answers.items():
        assert found[name]["label"] == ("" if answer == NONE else answer)
    corrections = rows(run / "corrections.csv")
    assert {Path(row["path"]).name: row["label"] for row in corrections} == answers
    assert {Path(row["path"]).name for row in corrections if row["source"] == "audit"} == {*audited}
    logged = {name: {"audit": label} for name, label in audited.items()}
    assert read_answers(run) == {**clicked, **logged}
    return found


def check_image_folder(run, found):
    files = {path.name: path for path in (run / "imagefolder").rglob("*.png")}
    assert set(files) == set(found)
    apart = {"unsure": "_unsure", "outlier": "_outlier"}
    for name, row in found.items():
        assert files[name].parent.name == apart.get(row["status"], row["label"])
        assert files[name].read_bytes() == Path(row["path"]).read_bytes()


def check_statement(run, sentence, n_audited):
    facts = json.loads((run / "run.json").read_text())
    statement = facts["review"]["statement"]
    assert statement["n_audited"] == statement["n_correct"] == n_audited
    assert statement["goal"] == 0.9
    assert statement["low"] >= 0.9
    assert statement["sentence"] == sentence
    assert sentence in (run / "report.html").read_text()
    assert facts["review"]["n_entries"] == len(read_log(run))
