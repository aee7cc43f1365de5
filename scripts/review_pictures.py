"""Make the pictures of docs/review.md: python scripts/review_pictures.py [docs].

Labels scikit-learn's handwritten digits, opens the review in a real browser, answers some photos,
and takes screenshots: review.png, review-map.png, review-audit.png and the animation review.gif.
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_digits

import infoshot

_CHROMIUM = "/usr/bin/chromium"
_NAMES = "zero one two three four five six seven eight nine".split()  # noqa: SIM905
_EXAMPLES, _PHOTOS = 4, 900
_ANSWERS = 12
_SIZE = {"width": 1280, "height": 800}
_FRAME = 550  # milliseconds of a frame
_COLOURS = 128  # of the animation


def main(out: Path) -> None:
    """Make all pictures."""
    out = out.absolute()
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        truth = _write_digits()
        infoshot.label("examples", "photos", "run", progress=False)
        with infoshot.review("run", open_browser=False) as review, sync_playwright() as play:
            browser = play.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page(viewport=_SIZE)
            page.goto(review.url)
            page.locator(".cell img.loaded").nth(7).wait_for()
            page.wait_for_timeout(20_000)  # suggestions, groups and t-SNE are computed meanwhile
            _take_pictures(page, truth, out)
            browser.close()


def _write_digits() -> dict[str, str]:
    """Write examples and photos; return the true classes of the photos by name."""
    digits = load_digits()
    truth: dict[str, str] = {}
    n_of = dict.fromkeys(_NAMES, 0)
    for number in np.random.default_rng(0).permutation(len(digits.target)):
        label = _NAMES[digits.target[number]]
        if n_of[label] < _EXAMPLES:
            n_of[label] += 1
            path = Path("examples") / label / f"{number:04d}.png"
        elif len(truth) < _PHOTOS:
            path = Path("photos") / f"scan-{number:04d}.png"
            truth[path.name] = label
        else:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = (255 - digits.images[number] * 255 / 16).astype(np.uint8)
        Image.fromarray(pixels).resize((96, 96), Image.Resampling.BICUBIC).save(path)
    return truth


def _take_pictures(page: Page, truth: dict[str, str], out: Path) -> None:
    page.reload()
    page.locator(".cell img.loaded").nth(7).wait_for()
    page.locator(".cell").first.click()
    page.wait_for_timeout(500)
    _save(page, out / "review.png")
    frames = [_shoot(page)]
    for number in range(_ANSWERS):
        name = page.locator(".cell[tabindex='0'] .cell-name").inner_text()
        page.keyboard.press(_key_of(page, truth[name]))
        page.wait_for_timeout(150 if number % 4 else 400)
        frames.append(_shoot(page))
    for _ in range(4):
        page.wait_for_timeout(1500)
        frames.append(_shoot(page))
    frames[0].save(
        out / "review.gif", save_all=True, append_images=frames[1:], duration=_FRAME, loop=0
    )
    page.locator("#side").get_by_text("Map", exact=True).click()
    page.locator("canvas").first.wait_for()
    page.wait_for_timeout(3000)
    _draw_lasso(page)
    page.wait_for_timeout(1500)
    _save(page, out / "review-map.png")
    page.get_by_role("button", name="audit").first.click()
    page.wait_for_timeout(1500)
    _save(page, out / "review-audit.png")


def _key_of(page: Page, label: str) -> str:
    keys = page.evaluate(
        "() => JSON.stringify([...document.querySelectorAll('#actions button')].map("
        "b => [b.querySelector('.button-text, .nav-name')?.textContent ?? b.innerText,"
        " b.querySelector('kbd')?.textContent ?? '']))"
    )
    for text, key in json.loads(keys):
        if text.split("\n")[0].strip() == label and key:
            return str(key).lower()
    return "Enter"


def _draw_lasso(page: Page) -> None:
    box = page.locator("canvas").first.bounding_box()
    if box is None:
        return
    corners = [(0.55, 0.2), (0.9, 0.2), (0.95, 0.55), (0.6, 0.55), (0.55, 0.2)]
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=8)
    page.mouse.up()


def _shoot(page: Page) -> Image.Image:
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    small = image.resize((image.width * 3 // 4, image.height * 3 // 4), Image.Resampling.LANCZOS)
    return small.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE)


def _save(page: Page, path: Path) -> None:
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
