"""README and documents are true: their Python runs, their tables and links are right."""

import re
import runpy
from pathlib import Path

import pytest

from infoshot.cli._commands import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", ["README.md", "docs/features.md", "docs/evaluate.md"])
def test_python_of_a_document_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / path).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    printed = [float(line) for line in capsys.readouterr().out.split()]
    promised = re.findall(r"^print.*# (\d[\d.]*)", text, re.MULTILINE)
    assert printed == [float(number) for number in promised]


def test_tables_of_the_readme_are_those_of_the_results():
    fill_tables = runpy.run_path(str(ROOT / "scripts" / "readme_table.py"))["fill_tables"]
    assert fill_tables(README) == README, "run: python scripts/readme_table.py"


def test_tables_of_pools_are_those_of_the_results(capsys, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    runpy.run_path(str(ROOT / "scripts" / "pools.py"))["print_tables"](
        ROOT / "results" / "pools.json"
    )
    shown = [line for line in (ROOT / "docs" / "pools.md").read_text().splitlines() if "|" in line]
    assert shown == [line for line in capsys.readouterr().out.splitlines() if "|" in line]


def test_links_of_the_documents_lead_somewhere():
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_commands_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in makefile
    documents = [README, *(path.read_text() for path in ROOT.glob("docs/*.md"))]
    for command in re.findall(r"^infoshot ([\w-]+)", "\n".join(documents), re.MULTILINE):
        assert command in COMMANDS


def test_accuracies_of_systems_are_those_of_the_report():
    """Our numbers in the tables of docs/systems.md are those of Table 1 of the committed report."""
    report = (ROOT / "results" / "reproduce" / "tables.md").read_text().partition("\n**Domain")[0]
    columns = {"mini-ImageNet": (2, 4), "CUB": (10, 12)}
    measured = {
        (cells[0], dataset): tuple(cells[number].split(" ± ")[0] for number in numbers)
        for cells in map(_cells, report.splitlines())
        for dataset, numbers in columns.items()
        if len(cells) > 12 and "±" in cells[numbers[0]]
    }
    rows = list(map(_cells, (ROOT / "docs" / "systems.md").read_text().splitlines()))
    ours = [(row[0].split("` ")[-1], "mini-ImageNet", row[5]) for row in rows if len(row) == 8]
    ours += [(row[0], row[1], row[2]) for row in rows if len(row) == 5 and row[1] in columns]
    shown = {(name, data): tuple(n.split(" / ")) for name, data, n in ours if " / " in n}
    assert len(shown) == 18
    assert shown == {name: measured[name] for name in shown}


def _cells(line):
    """Return the cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
