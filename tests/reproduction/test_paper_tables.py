"""Tables in the paper's layout: order, blocks, bold numbers, remarks; as Markdown and LaTeX."""

import re

import pytest

from infoshot.report.page import Strong, Table
from infoshot.reproduction.coverage import cover
from infoshot.reproduction.paper import ACCURACY_TABLES
from infoshot.reproduction.paper_tables import paper_table
from infoshot.reproduction.table_formats import (
    as_page_table,
    paper_table_to_latex,
    to_latex,
    to_markdown,
)
from tests.reproduction.synthetic_results import make_results, source

FULL = "CE-H(Y)+H(Y|X)"


def _means(offset=0.0):
    ranks = {"TIM-ADM": 9, "TIM-GD": 9, "LaplacianShot": 5}

    def choose(cell):
        mean = 50 + offset + ranks.get(cell.name, 0) + (5 if cell.loss == FULL else 0)
        return "needs images" if cell.over_network else [mean - 1, mean + 1]

    return choose


@pytest.fixture
def make(tmp_path):
    files = {source("cub", number=n): _means(n) for n in range(3)}
    files |= {source("mini-imagenet", number=n): _means(2 * n) for n in range(2)}
    files |= {source("mini-imagenet", "wrn28-10"): _means(1), source("mini-to-cub"): _means()}
    results = make_results(tmp_path, files)
    coverage = cover(results, ACCURACY_TABLES)
    return lambda name: paper_table(name, results, coverage)


def _cells(table, label, backbone):
    return next(row for row in table.rows if row[:2] == [label, backbone])


def test_columns_of_table_1_are_in_the_order_of_the_paper(make):
    table = as_page_table(make("table1"))
    assert [cell.replace("\n", " ") for cell in table.header[2::2]] == [
        "mini- ImageNet 1-shot", "mini- ImageNet 5-shot", "tiered- ImageNet 1-shot",
        "tiered- ImageNet 5-shot", "CUB 1-shot", "CUB 5-shot",
    ]  # fmt: skip
    assert table.header[:2] == ["method", "backbone"]
    assert table.header[3::2] == ["paper"] * 6
    assert list(table.headings.values()) == [
        "Inductive, ResNets", "Transductive, ResNets", "Inductive, WRN28-10",
        "Transductive, WRN28-10",
    ]  # fmt: skip
    assert (
        "Measured here on CUB, ResNet-18, 3 networks; mini-ImageNet, ResNet-18, 2" in table.caption
    )
    assert [row[0] for row in table.rows][:4] == ["MAML", "RelatNet", "MatchNet", "ProtoNet"]


def test_our_numbers_are_beside_the_published_ones(make):
    table = as_page_table(make("table1"))
    row = _cells(table, "LaplacianShot", "ResNet-18")
    # Tasks of 55 ± 1 points; mini-ImageNet has two networks two points apart, CUB three.
    assert row[2:] == [
        "56.00 ± 1.96\nrange 2.00", "72.1", "56.00 ± 1.96\nrange 2.00", "82.3",
        "no data", "79.0", "no data", "86.4",
        "56.00 ± 1.96\ns 1.00", "81.0", "56.00 ± 1.96\ns 1.00", "88.7",
    ]  # fmt: skip
    assert _cells(table, "MAML", "ResNet-18")[2:6] == [
        "own training",
        "49.6",
        "own training",
        "65.7",
    ]
    assert _cells(table, "LaplacianShot", "WRN28-10")[2] == "56.00 ± 1.96"
    assert _cells(table, "Ent-min", "WRN28-10")[2] == "not run"
    assert _cells(table, "Prototype", "ResNet-18")[3] == "-"


def test_the_best_of_each_backbone_is_bold(make):
    table = as_page_table(make("table1"))
    bold = [(row[0], row[1]) for row in table.rows if isinstance(row[2], Strong)]
    assert bold == [
        ("TIM-ADM", "ResNet-18"), ("TIM-GD", "ResNet-18"), ("TIM-ADM", "WRN28-10"),
        ("TIM-GD", "WRN28-10"),
    ]  # fmt: skip
    printed = [(row[0], row[1]) for row in table.rows if isinstance(row[3], Strong)]
    assert printed == [("TIM-GD", "ResNet-18"), ("TIM-GD", "WRN28-10")]  # 73.9 and 77.8


def test_the_other_tables_have_the_lines_of_the_paper(make):
    shift = as_page_table(make("table2"))
    assert [row[0] for row in shift.rows] == [
        "MatchNet", "MAML", "ProtoNet", "RelatNet", "SimpleShot", "GNN", "Neg-Cosine",
        "Baseline", "LaplacianShot", "TIM-ADM", "TIM-GD", "Baseline: linear probe (Adam)",
    ]  # fmt: skip
    ways = as_page_table(make("table3"))
    assert [cell.replace("\n", " ") for cell in ways.header[2::2]] == [
        "10-way 1-shot", "10-way 5-shot", "20-way 1-shot", "20-way 5-shot",
    ]  # fmt: skip
    ablation = as_page_table(make("table4"))
    assert list(ablation.headings.values()) == [
        "TIM-ADM, {W}, ResNet-18", "TIM-GD, {W}, ResNet-18", "TIM-GD, {phi, W}, ResNet-18",
        "TIM-ADM, {W}, WRN28-10", "TIM-GD, {W}, WRN28-10",
    ]  # fmt: skip
    assert [row[0] for row in ablation.rows[:5]] == [
        "CE", "CE+H(Y|X)", "CE-H(Y)", FULL, f"{FULL}\nnot linearised",
    ]  # fmt: skip


def test_a_number_that_some_networks_lack_says_so(tmp_path):
    files = {source("cub"): _means(), source("cub", number=1): lambda cell: [50.0, 60.0]}
    results = make_results(tmp_path, files)
    table = as_page_table(paper_table("table4", results, cover(results, ACCURACY_TABLES)))
    heading = {title: number for number, title in table.headings.items()}
    row = table.rows[heading["TIM-GD, {phi, W}, ResNet-18"]]
    assert row[9] == "55.00 ± 9.80\n1 of 2 networks"


@pytest.mark.parametrize("name", ACCURACY_TABLES)
def test_latex_of_a_table_is_regular(make, name):
    text = paper_table_to_latex(make(name))
    _check_latex(text)
    assert "nan" not in text
    assert " - " not in text  # missing numbers are dashes
    assert "own training &" not in text


def test_latex_shows_best_numbers_in_bold_and_formulas(make):
    text = paper_table_to_latex(make("table4"))
    assert r"$\mathrm{CE}-H(Y)+H(Y\mid X)$, not linearised & ResNet-18" in text
    assert r"\emph{TIM-GD, $\{\phi, W\}$, ResNet-18}" in text
    start = r"$\mathrm{CE}-H(Y)+H(Y\mid X)$ &"
    line = next(line for line in text.splitlines() if line.startswith(start))
    assert r"$\mathbf{65.00} \pm 1.96$ {\tiny (range 2.00)} & \textbf{73.6}" in line
    assert r"\multicolumn{4}{c}{tiered-ImageNet}" in text
    caption = next(line for line in text.splitlines() if line.startswith(r"\caption"))
    assert "CUB, ResNet-18, 3 networks" in caption


def test_any_table_is_escaped_for_latex():
    table = Table(
        ["a_b", "50%"], [["x & y", Strong("1 ± 2")], ["", "-"]], "A #1", "note_", {1: "T{"}
    )
    text = to_latex(table)
    _check_latex(text)
    assert r"x \& y & \textbf{1 $\pm$ 2} \\" in text
    assert r"-- & -- \\" in text
    assert r"\emph{T\{}" in text


def test_markdown_keeps_bold_and_headings():
    table = Table(["a", "b"], [["x|y", Strong("1\n2")], ["z", ""]], "A", headings={1: "T"})
    body = ["| a | b |", "| --- | --- |", "| x\\|y | **1 2** |", "| **T** |  |", "| z |  |"]
    assert to_markdown(table) == "\n".join(["**A**", "", *body, ""])


def _check_latex(text):
    """Check environments, columns per line, braces and formulas."""
    for name in ("table*", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1
    bare = re.sub(r"\\[{}$&%_#\\]", "", text)
    assert bare.count("{") == bare.count("}")
    kinds = re.search(r"\\begin{tabular}{(.*)}\n", text)[1]
    n_columns = len(re.sub(r"p{.*?}", "p", kinds))
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    for line in lines:
        cells = re.split(r"(?<!\\)&", line)
        spans = [int(n) for cell in cells for n in re.findall(r"\\multicolumn{(\d+)}", cell)]
        assert len(cells) - len(spans) + sum(spans) == n_columns, line
        for cell in cells:
            formula = re.split(r"(?<!\\)\$", cell)
            assert len(formula) % 2 == 1, cell
            assert not any(r"\pm" in part for part in formula[::2]), cell
            assert not re.search(r"(?<!\\)[%#]|±", cell), cell
