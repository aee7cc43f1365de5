"""What the README says is what happens."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        exec(block, names)
    printed = [float(line) for line in capsys.readouterr().out.split()]
    promised = [
        float(number) for number in re.findall(r"^print.*# (\d\.\d+)", README, re.MULTILINE)
    ]
    assert [round(number, 2) for number in printed] == promised
    assert (tmp_path / "digits.safetensors").is_file()


def test_tables_of_the_readme_are_those_of_the_results():
    fill_tables = runpy.run_path(str(ROOT / "scripts" / "readme_table.py"))["fill_tables"]
    assert fill_tables(README) == README, "run: python scripts/readme_table.py"


def test_links_of_the_documents_lead_somewhere():
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_commands_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in makefile
    app = (ROOT / "src/infoshot/cli/app.py").read_text()
    for command in re.findall(r"^infoshot (\w+)", README, re.MULTILINE):
        assert f'app.command("{command}")' in app or f'name="{command}"' in app
