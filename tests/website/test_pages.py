"""Docstrings, formulas and links as the site writes them."""

import posixpath
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def as_markdown(website):
    return website("rest_docstrings").as_markdown


def test_formulas_of_docstrings(as_markdown):
    assert as_markdown(r"with :math:`\alpha" "\n  + 1` in it") == r"with $\alpha + 1$ in it"
    block = ".. math:: a = b, \\\n          c = d\n\nText"
    assert as_markdown(block) == "$$\na = b, \\ c = d\n$$\n\nText"
    assert as_markdown(".. math::\n\n    a = b\n\nText") == "$$\na = b\n$$\n\nText"


def test_roles_of_docstrings_are_links_to_public_names(as_markdown):
    assert as_markdown(":func:`infoshot.label`") == "[`label`][infoshot.label]"
    assert as_markdown(":class:`Status`") == "[`Status`][infoshot.Status]"
    assert as_markdown(":func:`prepare`") == "[`prepare`][infoshot.features.prepare]"
    assert as_markdown(":func:`private_thing`") == "`private_thing`"


def test_literal_blocks_of_docstrings(as_markdown):
    text = "A solver::\n\n    x = 1\n\n    y = 2\n\nMore: text\n"
    assert as_markdown(text) == (
        "A solver:\n\n```python\n    x = 1\n\n    y = 2\n```\n\nMore: text\n"
    )
    assert as_markdown("A list:\n\n- one\n") == "A list:\n\n- one\n"


def test_examples_without_a_section_are_code(as_markdown):
    text = "Text.\n\n>>> x = 1\n>>> x\n1\n\nMore."
    assert as_markdown(text) == "Text.\n\n```python\n>>> x = 1\n>>> x\n1\n```\n\nMore."
    section = "Text.\n\nExamples\n--------\n>>> x"
    assert as_markdown(section) == section


def test_references_of_docstrings(as_markdown):
    assert as_markdown("see [Boudiaf2020]_") == "see [Boudiaf2020]"
    assert as_markdown(".. [Boudiaf2020] M. Boudiaf") == "[Boudiaf2020] M. Boudiaf"


def test_formulas_become_mathml(website):
    write = website("formulas").write_mathml
    inline = write(r'<p><span class="arithmatex">\(x &lt; \lvert y \rvert\)</span></p>')
    assert inline.startswith('<p><span class="formula"><math ')
    assert "<mi>x</mi>" in inline
    assert "&lt;" in inline or "&#x0003C;" in inline
    assert inline.count('form="prefix"') == inline.count('form="postfix"') == 1
    assert "arg" in write(r'<span class="arithmatex">\(\arg\max_k p\)</span>')
    assert "\\" not in write(r'<span class="arithmatex">\(\arg\max_k p\)</span>')
    block = write('<div class="arithmatex">\\[\\sum_i x_i\\]</div>')
    assert 'display="block"' in block


@pytest.mark.parametrize(
    ("page", "link", "target"),
    [
        ("index.md", "docs/label.md", "label.md"),
        ("index.md", "results/README.md", "results/index.md"),
        ("math.md", "../results/core.md", "results/core.md"),
        ("how-to-choose.md", "../results/methods-time.png", "results/methods-time.png"),
        ("math.md", "../src/infoshot/metrics.py", "source/src/infoshot/metrics.py.md"),
        ("systems.md", "../CONTRIBUTING.md#add-a-system", "project/contributing.md#add-a-system"),
        ("results/methods.md", "../docs/label.md", "label.md"),
        ("evaluate.md", "../results/reproduce/README.md", "results/reproduce/index.md"),
    ],
)  # fmt: skip
def test_links_to_other_folders_lead_to_their_pages(website, page, link, target):
    mapped = website("outside").map_links(f"see [it]({link}).", page)
    found = mapped.removeprefix("see [it](").removesuffix(").")
    assert posixpath.normpath(posixpath.join(posixpath.dirname(page), found)) == target


def test_links_named_after_a_file_show_the_title_of_its_page(website):
    shown = website("outside").map_links("see [pools.md](pools.md#all-methods).", "label.md")
    assert shown == "see [Single pools of images](pools.md#all-methods)."


def test_public_names_in_a_text_become_links(website):
    link = website("reference").link_names
    name = '<autoref identifier="infoshot.TaskBatch"><code>TaskBatch</code></autoref>'
    assert link("a <code>TaskBatch</code>") == f"a {name}"
    full = "<code>infoshot.metrics.accuracy</code>"
    assert link(full) == f'<autoref identifier="infoshot.metrics.accuracy">{full}</autoref>'
    for other in (
        "<code>label</code>",
        '<a href="x"><code>TaskBatch</code></a>',
        "<code>--json</code>",
    ):
        assert link(other) == other


def test_other_links_stay(website):
    for link in ("https://arxiv.org/abs/2008.11297", "#formulas", "no-such-file.md"):
        assert website("outside").map_links(f"[it]({link})", "math.md") == f"[it]({link})"


def test_names_of_pages_in_docstrings_become_links(website):
    link = website("outside").link_names
    assert link("<code>docs/math.md</code>", "reference/methods/TimAdm.html") == (
        '<a href="../../math.html"><code>docs/math.md</code></a>'
    )
    assert link("<code>docs/none.md</code>", "index.html") == "<code>docs/none.md</code>"


def test_all_results_pages_and_pictures_are_in_the_site(website):
    outside = website("outside")
    pages = outside.write_pages()
    written = {str(path.relative_to(ROOT)) for path in (ROOT / "results").rglob("*.md")}
    places = {posixpath.normpath(place).replace("/README.md", "/index.md") for place in written}
    assert places <= set(pages)
    assert (ROOT / "results" / "methods.md").read_text() in pages["results/methods.md"]
    assert {"results/methods-time.png", "results/reproduce/report.html"} <= set(
        outside.find_copies()
    )


def test_names_in_a_text_are_broken_where_it_helps(website):
    keep = website("line_breaks").keep_names
    assert keep("<code>label --add x.csv</code>") == (
        '<code>label <span class="name">--add</span> x.csv</code>'
    )
    assert keep("<code>TaskSpec.regime</code>") == ("<code>TaskSpec.<wbr>regime</code>")
    assert keep(f"<code>test_{'x' * 40}</code>") == f"<code>test_<wbr>{'x' * 40}</code>"
    for other in (
        "a--b",
        "<code>label</code>",
        f"<code>{'a-b' * 10}</code>",
        "<pre><span></span><code>label --add TaskSpec.regime</code></pre>",
        "<code><a>tim-adm</a></code>",
    ):
        assert keep(other) == other


def test_numbers_stay_on_one_line(website):
    keep = website("line_breaks").keep_numbers
    assert keep("<td>67.5 ± 0.25</td>") == "<td>67.5\u00a0±\u00a00.25</td>"
    assert keep("<b>69.9 / -81.2</b>, 95 %") == "<b>69.9\u00a0/\u00a0-81.2</b>, 95\u00a0%"
    for other in ("<code>4 / 2 % 3</code>", "<pre><b>1 % 2</b></pre>", "yes / no", "a % b"):
        assert keep(other) == other


def test_parameters_that_share_a_text_have_entries_of_their_own(as_markdown):
    text = "Do.\n\nParameters\n----------\na, b\n    Both\n    of them.\nc\n    One.\n"
    assert as_markdown(text) == text.replace(
        "a, b\n    Both\n    of them.", "a\n    Both\n    of them.\nb\n    Both\n    of them."
    )


def test_what_a_function_returns_is_no_type(as_markdown):
    text = "Returns\n-------\nThe sum,\nand more.\n\nRaises\n------\nError\n    If."
    assert as_markdown(text) == text.replace(
        "The sum,\nand more.", ":\n    The sum,\n    and more."
    )
    typed = "Returns\n-------\nint\n    The sum."
    assert as_markdown(typed) == typed
