"""Reports are parsed as HTML, and rendered in a browser where there is one."""

import base64
import io
import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from infoshot.report.page import (
    Bars,
    Details,
    Gallery,
    Picture,
    Section,
    Strong,
    Table,
    Text,
    Thumbnail,
    page,
)

VOID = {"meta", "link", "img", "br", "hr"}
NASTY = "<script>alert(1)</script> & \"quotes\" 'and' {{ 7 * 7 }} {% raw %} {# more #}"


def _png(width=60, height=40):
    stream = io.BytesIO()
    Image.new("RGB", (width, height), "steelblue").save(stream, "PNG")
    return stream.getvalue()


class _Reader(HTMLParser):
    """The elements with their attributes and the text; tags must be closed in order."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.text = [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append((tuple(self.open), data))

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def text_in(self, tag):
        return [text for path, text in self.text if tag in path and text.strip()]


def _report(n_sections=3):
    wide = Table(
        ["method", *(f"setting {i}" for i in range(24))],
        [[f"method-{i}", *(f"{60 + i}.25 ± 0.18" for _ in range(24))] for i in range(8)],
        caption="Accuracy (%)",
        note="Mean and 95 % interval.",
    )
    sections = [
        Section("Numbers", [wide, Table(["", "n"], [["best", Strong("73.9")], ["other", "5"]])]),
        Section("Picture", [Picture(_png(2400, 900), "A blue field", "Nothing but blue.")]),
        Section("Words", [Text(["word " * 300, "unbroken" * 60])]),
    ]
    return page("A report", sections[:n_sections], subtitle="from 600 tasks")


def test_a_page_is_well_formed():
    reader = _Reader(_report())
    assert reader.of("html") == [{"lang": "en"}]
    assert [tag for tag, _ in reader.elements].count("main") == 1
    assert reader.text_in("h1") == reader.text_in("title") == ["A report"]
    assert reader.text_in("h2") == ["Numbers", "Picture", "Words"]
    assert "from 600 tasks" in reader.text_in("p")
    assert len(reader.of("tr")) == 1 + 8 + 1 + 2
    assert len(reader.of("td")) == 8 * 24 + 2


def test_all_text_is_escaped():
    sections = [
        Section(
            NASTY,
            [
                Table([NASTY, NASTY], [[NASTY, Strong(NASTY)]], NASTY, NASTY),
                Picture(_png(), NASTY, NASTY),
                Gallery([Thumbnail(b"jpeg", NASTY, NASTY)], NASTY),
                Bars([(NASTY, 1.0, NASTY)], NASTY),
                Text([NASTY]),
            ],
        )
    ] * 3
    html = page(NASTY, sections, subtitle=NASTY)
    reader = _Reader(html)
    assert "<script" not in html
    for tag in ("title", "h1", "h2", "a", "th", "td", "strong", "figcaption", "p", "span"):
        assert set(reader.text_in(tag)) == {NASTY}
    assert {image["alt"] for image in reader.of("img")} == {NASTY}
    assert {box["aria-label"] for box in reader.of("div") if "aria-label" in box} == {NASTY}


def test_bars_are_scaled_to_the_longest():
    bars = Bars([("a", 4.0, "four"), ("b", 1.0, "one"), ("c", 0.0, "none")])
    reader = _Reader(page("A", [Section("B", [bars, Bars([("d", 0.0, "none")])])]))
    widths = [bar["style"] for bar in reader.of("b")]
    assert widths == ["width:100.0%", "width:25.0%", "width:0.0%", "width:0.0%"]
    assert reader.text_in("span") == ["a", "four", "b", "one", "c", "none", "d", "none"]


def test_headers_keep_their_line_breaks_and_get_no_others():
    reader = _Reader(page("A", [Section("B", [Table(["method", "mini\n1-shot"], [["a", "1"]])])]))
    cells = [text for path, text in reader.text if path[-1:] in (("th",), ("td",))]
    assert cells == ["method", "mini\n1-shot", "a", "1"]


def test_pictures_are_embedded_and_described():
    png = _png()
    reader = _Reader(page("A", [Section("B", [Picture(png, "a description", "a caption")])]))
    (image,) = reader.of("img")
    assert image["alt"] == "a description"
    kind, content = image["src"].split(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(content) == png
    assert reader.text_in("figcaption") == ["a caption"]


def test_nothing_is_fetched_and_nothing_runs():
    html = _report()
    reader = _Reader(html)
    assert "http" not in html
    assert "url(" not in html
    assert "@import" not in html
    assert not reader.of("script")
    sources = [a[key] for _, a in reader.elements for key in ("src", "href") if key in a]
    assert all(source.startswith(("data:", "#")) for source in sources)


def test_strong_cells_are_bold():
    reader = _Reader(_report())
    assert reader.text_in("strong") == ["73.9"]


def test_long_cells_are_set_as_prose():
    table = Table(["name", "n", "remark"], [["a", "1", "x" * 41], ["b", "2", "short"]])
    reader = _Reader(page("A", [Section("B", [table])]))
    assert [cell.get("class") for cell in reader.of("td")] == [None, "prose"] * 2
    assert [cell.get("class") for cell in reader.of("th")[:3]] == [None, None, "prose"]


@pytest.mark.parametrize(("n_sections", "has_contents"), [(2, False), (3, True)])
def test_three_sections_get_a_table_of_contents(n_sections, has_contents):
    reader = _Reader(_report(n_sections))
    targets = [f"#{section['id']}" for section in reader.of("section")]
    assert len(set(targets)) == n_sections
    assert [link["href"] for link in reader.of("a")] == (targets if has_contents else [])


def test_headings_span_the_columns_above_their_row():
    table = Table(["a", "b"], [["1", "2"], ["3", "4"]], headings={1: "Second <half>"})
    html = page("T", [Section("S", [table])])
    heading = '<th scope="rowgroup" colspan="2">Second &lt;half&gt;</th>'
    assert heading in html
    assert html.index("<td>2</td>") < html.index(heading) < html.index("<td>4</td>")


def test_details_hold_any_part_and_are_closed():
    parts = [Text(["inside"]), Table(["a"], [["1"]])]
    html = page("T", [Section("S", [Details("More & more", parts)])])
    assert "<details><summary>More &amp; more</summary>" in html
    assert html.index("<details>") < html.index("<p>inside</p>") < html.index("</details>")
    assert html.index('<th scope="col">a</th>') < html.index("</details>")


@pytest.mark.parametrize(("n_columns", "is_small"), [(6, False), (7, True)])
def test_tables_of_many_columns_are_in_small_type(n_columns, is_small):
    table = Table(["a"] * n_columns, [["1"] * n_columns])
    assert ('<table class="wide">' in page("T", [Section("S", [table])])) == is_small


def test_a_row_with_a_missing_cell_raises():
    with pytest.raises(ValueError, match=r"cell for each of the 2 columns; got 1: \['a'\]\."):
        Table(["method", "accuracy"], [["a"]])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_fits_the_window(browser, tmp_path, width, scheme):
    path = tmp_path / "report.html"
    path.write_text(_report(), encoding="utf-8")
    window = {"width": width, "height": 800}
    context = browser.new_context(viewport=window, color_scheme=scheme)
    tab = context.new_page()
    problems, requests = [], []
    tab.on("console", lambda message: problems.append(message.text))
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(path.as_uri())

    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.locator("table").count() == 2
    assert tab.evaluate("[...document.images].map(image => image.naturalWidth)") == [2400]
    assert tab.evaluate("document.images[0].clientWidth") < width
    wide = tab.locator(".box").first
    assert wide.evaluate("box => box.scrollWidth > box.clientWidth")
    numbers = re.findall(r"\d+", tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (int(numbers[0]) > 128) == (scheme == "light")
    assert not problems
    assert all(url.startswith(("file:", "data:")) for url in requests)
    context.close()
