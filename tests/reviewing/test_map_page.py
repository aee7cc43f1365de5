"""The map in Chromium: what a lasso selects, zoom and pan, and drawing without WebGL."""

import functools
import http.server
import io
import json
import math
import threading
from importlib.resources import files

import numpy as np
import pytest
from PIL import Image

N_MANY = 100_000
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self';
 style-src 'self'; connect-src 'self'">
<link rel="stylesheet" href="page.css"><script type="module" src="page.js"></script></head>
<body><canvas id="map"></canvas></body></html>"""
STYLE = "body { margin: 0 } #map { display: block; width: 640px; height: 480px; color: black }"
SCRIPT = """
import { createMap } from "./map.js";
if (location.hash === "#none") {
  const noWebgl = (open) => function (kind, ...rest) {
    return kind === "webgl2" ? null : open.call(this, kind, ...rest);
  };
  for (const kind of [HTMLCanvasElement, OffscreenCanvas]) {
    kind.prototype.getContext = noWebgl(kind.prototype.getContext);
  }
}
window.seen = { selected: [], hovered: [], opened: [] };
window.map = createMap(document.getElementById("map"), {
  onSelect: (ids, additive) => seen.selected.push([ids, additive]),
  onHover: (id) => seen.hovered.push(id),
  onOpen: (id) => seen.opened.push(id),
}, location.hash === "#webgl" ? "webgl" : "auto");
window.show = async (name) => {
  const xy = new Float32Array(await (await fetch(name)).arrayBuffer());
  map.setPoints(xy);
  const n = xy.length / 2;
  map.setColours(new Uint16Array(n), new Uint8Array(n).fill(255), ["rgb(255, 0, 0)"]);
};
window.frames = (n) => new Promise((resolve) => {
  const next = () => (n-- > 0 ? requestAnimationFrame(next) : resolve());
  next();
});
document.documentElement.dataset.ready = "";
"""
RENDERERS = ["#webgl", "#none"]  # also on machines without a GPU, where WebGL is slow


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def points():
    """Float32 positions by file name; some have none."""
    rng = np.random.default_rng(0)
    many = rng.uniform(-1, 1, (N_MANY, 2)).astype(np.float32)
    many[::1000] = np.nan
    moved = many[::-1].copy()
    return {
        "many": many,
        "moved": moved,
        "few": np.array([[-0.5, 0.5], [0.5, 0.5], [0, -0.5], [np.nan, np.nan]], np.float32),
        "corner": np.array([[-0.6, 0.7], [0.6, -0.2]], np.float32),
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory, points):
    """Address of a page that holds nothing but the map."""
    folder = tmp_path_factory.mktemp("site")
    for name, text in {"index.html": PAGE, "page.css": STYLE, "page.js": SCRIPT}.items():
        (folder / name).write_text(text)
    for file in files("infoshot.reviewing").joinpath("static").iterdir():
        if file.name.startswith("map"):
            (folder / file.name).write_bytes(file.read_bytes())
    for name, xy in points.items():
        (folder / name).write_bytes(xy.tobytes())
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=folder)
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def open_map(browser, site):
    """Open the page with some points; errors on the page fail the test."""
    contexts, errors = [], []

    def open_page(name, renderer="#webgl", **settings):
        settings = {"reduced_motion": "reduce", **settings}
        context = browser.new_context(viewport={"width": 700, "height": 520}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        page.goto(site + renderer)
        page.wait_for_selector("html[data-ready]")
        page.evaluate("(name) => show(name)", name)
        page.evaluate("frames(2)")
        return page

    yield open_page
    for context in contexts:
        context.close()
    errors = [error for error in errors if "favicon" not in error and "404" not in error]
    assert not errors


def _screen(xy, size=(640, 480)):
    """Where points are in CSS pixels: the square from -1 to 1 takes 94 % of the shorter side."""
    return np.array(size) / 2 + xy.astype(float) * [1, -1] * 0.47 * min(size)


def _inside(points, polygon):
    """Whether each point is in a polygon: the angles of the sides, seen from it, make a turn."""
    ends = np.concatenate([polygon, polygon[:1]])[None] - points[:, None].astype(float)
    angles = np.arctan2(ends[..., 1], ends[..., 0])
    turns = (np.diff(angles, axis=1) + np.pi) % (2 * np.pi) - np.pi
    return np.abs(turns.sum(1)) > math.pi


def _drag(page, corners, **options):
    page.mouse.move(*corners[0])
    page.mouse.down(**options)
    for corner in corners[1:]:
        page.mouse.move(*corner)
    page.mouse.up(**options)


def _pixel(page, left, top):
    """Colour of a place on a screenshot."""
    page.evaluate("frames(2)")
    with Image.open(io.BytesIO(page.screenshot())) as image:
        return image.convert("RGB").getpixel((round(left), round(top)))


STAR = [
    (320 + r * math.cos(a), 240 + r * math.sin(a))
    for a, r in ((k * math.pi / 20, 180 if k % 4 < 2 else 70) for k in range(40))
]


@pytest.mark.parametrize("renderer", RENDERERS)
def test_a_lasso_selects_exactly_the_points_inside(open_map, points, renderer):
    page = open_map("many", renderer)
    _drag(page, STAR)
    ids, additive = page.evaluate("seen.selected.at(-1)")
    inside = _inside(_screen(points["many"]), np.array(STAR))
    assert ids == np.flatnonzero(inside).tolist()
    assert 10_000 < len(ids) < 50_000
    assert additive is False


def test_shift_adds_and_a_click_selects_one_point(open_map, points):
    page = open_map("few")
    at = _screen(points["few"])
    page.mouse.click(*at[1])
    page.keyboard.down("Shift")
    page.mouse.click(*at[0])
    _drag(page, [(300, 300), (340, 300), (340, 400), (300, 400)])
    page.keyboard.up("Shift")
    page.mouse.click(320, 240)
    expected = [[[1], False], [[0], True], [[2], True], [[], False]]
    assert page.evaluate("seen.selected") == expected


def test_zoom_keeps_the_place_below_the_pointer(open_map, points):
    page = open_map("few")
    place = np.array([400, 150])
    page.mouse.move(*place.tolist())
    page.mouse.wheel(0, -500)
    page.evaluate("frames(2)")
    zoom = math.exp(1)
    found = np.array(page.evaluate("[0, 1, 2].map((id) => map.locate(id))"))
    expected = place + (_screen(points["few"])[:3] - place) * zoom
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert page.evaluate("map.locate(3)") is None


def test_lasso_after_zoom_and_pan(open_map, points):
    page = open_map("many")
    page.mouse.move(200, 150)
    page.mouse.wheel(0, -400)
    _drag(page, [(300, 200), (350, 260)], button="middle")
    page.focus("#map")
    page.keyboard.down("Space")
    _drag(page, [(300, 200), (280, 210)])
    page.keyboard.up("Space")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    assert page.evaluate("seen.selected") == []
    _drag(page, STAR)
    before = _screen(points["many"])
    zoomed = np.array([200, 150]) + (before - [200, 150]) * math.exp(0.8)
    panned = zoomed + np.array([50 - 20 - 60, 60 + 10])
    now = np.array([320, 240]) + (panned - [320, 240]) * 1.3
    ids, _ = page.evaluate("seen.selected.at(-1)")
    assert ids == np.flatnonzero(_inside(now, np.array(STAR))).tolist()
    page.keyboard.press("0")
    np.testing.assert_allclose(page.evaluate("map.locate(1)"), before[1], atol=1e-6)


@pytest.mark.parametrize("renderer", RENDERERS)
def test_points_are_drawn_where_they_are(open_map, points, renderer):
    page = open_map("corner", renderer)
    for x, y in _screen(points["corner"]):
        assert _pixel(page, x, y) == (255, 0, 0)
        assert _pixel(page, x + 30, y) == (255, 255, 255)
    page.evaluate("map.select([0])")
    (left, top), (other_left, other_top) = _screen(points["corner"])
    assert _pixel(page, left, top) == (255, 0, 0)
    faded = _pixel(page, other_left, other_top)
    assert faded[0] == 255
    assert faded[1] == pytest.approx(153, abs=3)  # 40 % red over white
    page.evaluate(
        "map.setColours(Uint16Array.of(1, 7), Uint8Array.of(128, 128), ['red', '#643214'])"
    )
    assert _pixel(page, left, top) == (100, 50, 20)  # marked points are opaque
    page.evaluate("map.select([])")
    assert _pixel(page, left, top) == pytest.approx((177, 152, 137), abs=2)
    red, green, blue = _pixel(page, other_left, other_top)  # no such colour: grey
    assert red == green == blue == pytest.approx(197, abs=2)


def test_marks_hold_when_points_move(open_map, points):
    page = open_map("corner", reduced_motion="no-preference")
    page.evaluate("map.select([1])")
    page.evaluate("map.setPoints(new Float32Array([0.6, 0.7, -0.6, -0.7]))")
    page.wait_for_timeout(1200)
    (left, top), (other_left, other_top) = _screen(np.array([[0.6, 0.7], [-0.6, -0.7]]))
    assert _pixel(page, left, top)[1] > 100  # faded, as the other one is marked
    assert _pixel(page, other_left, other_top) == (255, 0, 0)
    old_left, old_top = _screen(points["corner"])[1]
    assert _pixel(page, old_left, old_top) == (255, 255, 255)


def test_hover_and_open(open_map, points):
    page = open_map("few")
    at = _screen(points["few"])
    page.mouse.move(*at[2] + 8)
    page.mouse.move(*at[0] + 30)
    assert page.evaluate("seen.hovered") == [2, None]
    page.mouse.dblclick(*at[0])
    page.keyboard.press("Enter")  # a key of the page
    assert page.evaluate("seen.opened") == [0]


def test_focus_brings_a_point_into_view(open_map, points):
    page = open_map("few")
    page.mouse.move(*_screen(points["few"])[0])
    page.mouse.wheel(0, -1500)
    left, top = page.evaluate("map.locate(2)")
    assert not (0 <= left <= 640 and 0 <= top <= 480)
    page.evaluate("map.focus(2)")
    np.testing.assert_allclose(page.evaluate("map.locate(2)"), [320, 240], atol=1e-6)


def test_two_fingers_zoom_and_pan_one_draws(open_map, points):
    page = open_map("few", has_touch=True)
    session = page.context.new_cdp_session(page)

    def touch(kind, *places):
        fingers = [{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})

    touch("touchStart", (300, 240), (340, 240))
    touch("touchMove", (270, 260), (370, 260))
    touch("touchEnd")
    page.evaluate("frames(2)")
    # What was between the fingers, the centre, is still between them; 2.5 times as large.
    np.testing.assert_allclose(
        page.evaluate("[0, 1, 2].map((id) => map.locate(id))"),
        [320, 260] + (_screen(points["few"])[:3] - [320, 240]) * 2.5,
        atol=2,
    )
    assert page.evaluate("seen.selected") == []
    page.focus("#map")
    page.keyboard.press("0")
    left, top = _screen(points["few"])[2]
    touch("touchStart", (left - 20, top - 20))
    for x, y in [(20, -20), (20, 20), (-20, 20)]:
        touch("touchMove", (left + x, top + y))
    touch("touchEnd")
    assert page.evaluate("seen.selected") == [[[2], False]]


def test_sharp_on_dense_screens_and_after_a_resize(open_map, points):
    page = open_map("few", device_scale_factor=2)
    assert page.evaluate("[document.querySelector('#map').width, devicePixelRatio]") == [1280, 2]
    page.evaluate("document.querySelector('#map').style.width = '500px'")
    page.evaluate("frames(3)")
    assert page.evaluate("document.querySelector('#map').width") == 1000
    np.testing.assert_allclose(
        page.evaluate("[0, 1, 2].map((id) => map.locate(id))"),
        _screen(points["few"], size=(500, 480))[:3],
        atol=1e-6,
    )


def test_a_lost_context_is_restored(open_map, points):
    page = open_map("corner")
    lost = page.evaluate(
        """async () => {
          const canvas = document.querySelector("#map");
          const extension = canvas.getContext("webgl2")?.getExtension("WEBGL_lose_context");
          if (!extension) return false;
          const until = (name) => new Promise((r) => canvas.addEventListener(name, r));
          const gone = until("webglcontextlost");
          extension.loseContext();
          await gone;
          map.select([]);
          const back = until("webglcontextrestored");
          setTimeout(() => extension.restoreContext(), 50);
          await back;
          return true;
        }"""
    )
    if not lost:
        pytest.skip("this Chromium has no WebGL")
    left, top = _screen(points["corner"])[0]
    assert _pixel(page, left, top) == (255, 0, 0)


@pytest.mark.parametrize("renderer", RENDERERS)
def test_many_points_move_and_stay_usable(open_map, renderer):
    page = open_map("many", renderer, reduced_motion="no-preference")
    page.evaluate("show('moved')")
    times = page.evaluate(
        """async () => {
          const canvas = document.querySelector("#map");
          const times = [];
          for (let k = 0; k < 20; k++) {
            const start = performance.now();
            canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: k % 2 ? 30 : -30 }));
            await frames(1);
            times.push(performance.now() - start);
          }
          return times;
        }"""
    )
    # Without a GPU on a busy machine: about 100 ms with WebGL, 25 ms with a 2D canvas.
    assert np.median(times) < 500, json.dumps(times)


def test_a_destroyed_map_is_silent(open_map, points):
    page = open_map("few")
    page.evaluate("map.destroy()")
    page.mouse.click(*_screen(points["few"])[0])
    page.evaluate("map.setPoints(new Float32Array(2))")
    page.evaluate("frames(2)")
    assert page.evaluate("seen.selected") == []
