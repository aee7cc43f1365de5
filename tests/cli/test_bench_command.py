"""The options of ``infoshot bench`` beyond those of ``test_cli.py``."""

import csv
import json

import pytest
import torch
from typer.testing import CliRunner

from infoshot import FeatureTable
from infoshot.benchmark import read_accuracies
from infoshot.cli.app import app
from infoshot.features import write_features


def run(*arguments):
    return CliRunner().invoke(app, ["bench", *(str(argument) for argument in arguments)])


@pytest.fixture
def features(tmp_path, embedded):
    """A feature file of six classes with 48 samples each and no base mean."""
    rows = torch.cat([(embedded.labels == k).nonzero().flatten()[:48] for k in range(6)])
    path = tmp_path / "six.safetensors"
    write_features(path, FeatureTable(embedded.features[rows], embedded.labels[rows]))
    return path


def test_variants_regimes_and_differences_in_one_table(features, tmp_path):
    out, table, tex = tmp_path / "rows.json", tmp_path / "rows.csv", tmp_path / "rows.tex"
    result = run(
        "--features", features, "--methods", "tim-adm,tim-adm(temperature=10)", "--shots", 1,
        "--queries", 5, "--tasks", 20, "--regime", "balanced,effective:2", "--regime", "few:5",
        "--against", "prototype", "--json", out, "--csv", table, "--latex", tex,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text())
    names = ["prototype", "tim-adm", "tim-adm (temperature=10)"]
    assert [(row["regime"], row["method"]) for row in rows] == [
        (regime, name) for regime in ("balanced", "effective:2", "few:5") for name in names
    ]
    assert rows[2]["settings"]["temperature"] == 10
    assert "Difference to prototype on the same tasks" in result.stdout
    accuracies = read_accuracies(tmp_path / "rows.accuracies.safetensors")
    assert list(accuracies) == sorted(row["accuracies_key"] for row in rows)
    for row in rows:
        assert f"{row['mean']:.2f} ± {row['ci95']:.2f}" in result.stdout
        assert f"{row['macro_f1']:.2f}" in result.stdout
        if row["method"] == "prototype":
            continue
        assert f"{row['difference']:+.2f} ± {row['difference_ci95']:.2f}" in result.stdout
        reference = accuracies[f"prototype/5-way/1-shot/{row['regime']}"]
        difference = 100 * (accuracies[row["accuracies_key"]] - reference).mean()
        assert row["difference"] == pytest.approx(float(difference))
    with table.open() as file:
        assert [line["method"] for line in csv.DictReader(file)] == [row["method"] for row in rows]
    assert r"\multicolumn{1}{c}{5-way, effective:2}" in tex.read_text()
    for path in (out, table, tex, tmp_path / "rows.accuracies.safetensors"):
        assert f"written to {path}" in result.stdout


def test_accuracies_may_go_elsewhere(features, tmp_path):
    out, elsewhere = tmp_path / "rows.json", tmp_path / "a.safetensors"
    options = ("--features", features, "--queries", 5, "--tasks", 3, "--shots", 1)
    assert run(*options, "--json", out, "--accuracies", elsewhere).exit_code == 0
    assert set(read_accuracies(elsewhere)) == {
        "prototype/5-way/1-shot/balanced", "tim-adm/5-way/1-shot/balanced",
    }  # fmt: skip
    assert not (tmp_path / "rows.accuracies.safetensors").exists()


@pytest.mark.filterwarnings("default")
def test_methods_that_cannot_run_are_skipped_and_named(features, tmp_path):
    out = tmp_path / "rows.json"
    options = ("--features", features, "--queries", 5, "--tasks", 2, "--shots", 1)
    result = run(*options, "--methods", "simpleshot,prototype,oslo", "--json", out)
    assert result.exit_code == 0, result.output
    for name in ("simpleshot", "oslo"):
        assert f"Warning: the method '{name}' is skipped: " in result.stderr
    assert [row["method"] for row in json.loads(out.read_text())] == ["prototype"]
    none = run(*options, "--methods", "simpleshot,oslo")
    assert none.exit_code == 2
    assert "Error: the method 'simpleshot' cannot run on these features: " in none.stderr


@pytest.mark.filterwarnings("default")
def test_all_methods(features, tmp_path):
    from infoshot.solvers import METHODS

    result = run(
        "--features", features, "--methods", "all", "--queries", 5, "--tasks", 2, "--shots", 1,
        "--json", tmp_path / "rows.json", "--set", "tim-gd.n_steps=3", "--set", "ent-min.n_steps=3",
        "--set", "alpha-tim.n_steps=3", "--latex", tmp_path / "rows.tex",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    names = [row["method"] for row in json.loads((tmp_path / "rows.json").read_text())]
    skipped = [name for name, method in METHODS.items() if "base-mean" in method.assumes]
    assert names == [name for name in METHODS if name not in skipped]
    text = (tmp_path / "rows.tex").read_text()
    assert all(rf"{name} & -- \\" in text for name in skipped)


@pytest.mark.filterwarnings("default")
def test_few_images_are_used_and_reported(features):
    result = run("--features", features, "--methods", "prototype", "--shots", 5, "--tasks", 40,
                 "--regime", "dirichlet:1")  # fmt: skip
    assert result.exit_code == 0, result.output
    sentence = "tasks, come from other classes of the task because their class has too few samples."
    assert result.stderr.count("Warning: 5-way 5-shot dirichlet:1: ") == 1
    assert sentence in result.stderr
    assert sentence in result.stdout


def test_outputs_must_differ(features, tmp_path):
    result = run("--features", features, "--json", tmp_path / "a", "--csv", tmp_path / "a")
    assert result.exit_code == 2
    assert "would replace an input or another output" in result.stderr
    assert list(tmp_path.iterdir()) == [features]
