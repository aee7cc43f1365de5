"""Every command with good and bad input, as a user types it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from infoshot import FeatureTable
from infoshot.cli.app import app
from infoshot.features import write_features
from infoshot.version import __version__


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def infoshot(*arguments, cwd=None):
    """The installed command in a process of its own."""
    command = [str(Path(sys.executable).with_name("infoshot")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.fixture
def features(tmp_path, embedded):
    """A feature file of six classes with 30 samples each."""
    rows = torch.cat([(embedded.labels == k).nonzero().flatten()[:30] for k in range(6)])
    path = tmp_path / "six.safetensors"
    table = FeatureTable(embedded.features[rows], embedded.labels[rows], embedded.base_mean)
    write_features(path, table)
    return path


@pytest.mark.parametrize("command", ["bench", "solve", "methods", "demo"])
def test_help_has_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: infoshot {command}" in " ".join(result.output.split())


def test_version():
    assert run("--version").output.strip() == f"infoshot {__version__}"


def test_bench_prints_a_table_and_writes_rows(features, tmp_path):
    out = tmp_path / "rows.json"
    result = run(
        "bench", "--features", features, "--methods", "prototype,simpleshot,tim-adm,tim-gd",
        "--ways", 5, "--shots", "1,5", "--queries", 10, "--tasks", 20, "--seed", 4,
        "--json", out, "--device", "cpu", "--set", "tim-gd.n_steps=20",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text())
    assert [(row["method"], row["shots"]) for row in rows] == [
        (method, shots)
        for method in ("prototype", "simpleshot", "tim-adm", "tim-gd")
        for shots in (1, 5)
    ]
    assert {row["tasks"] for row in rows} == {20}
    assert {row["seed"] for row in rows} == {4}
    assert rows[0]["features"] == "six.safetensors"
    assert rows[-1]["settings"]["n_steps"] == 20
    for row in rows:
        assert f"{row['mean']:.2f} ± {row['ci95']:.2f}" in result.output


def test_bench_gives_the_same_numbers_twice(features, tmp_path):
    numbers = []
    for name in ("a.json", "b.json"):
        run(
            "bench",
            "--features",
            features,
            "--tasks",
            50,
            "--queries",
            5,
            "--json",
            tmp_path / name,
        )
        numbers.append([row["mean"] for row in json.loads((tmp_path / name).read_text())])
    assert numbers[0] == numbers[1]


def test_setting_without_a_method_changes_all_that_have_it(features, tmp_path):
    out = tmp_path / "rows.json"
    run(
        "bench", "--features", features, "--methods", "prototype,tim-adm", "--shots", 1,
        "--queries", 5, "--tasks", 3, "--json", out, "--set", "temperature=7", "--set", "n_steps=9",
    )  # fmt: skip
    settings = [row["settings"] for row in json.loads(out.read_text())]
    assert [setting["temperature"] for setting in settings] == [7, 7]
    assert settings[1]["n_steps"] == 9


def test_solve_labels_the_unlabelled_rows(tmp_path, embedded):
    rows = torch.cat([(embedded.labels == k).nonzero().flatten()[:40] for k in (2, 5)])
    truth, labels = embedded.labels[rows], embedded.labels[rows].clone()
    labels[5:40] = labels[45:] = -1
    path, out = tmp_path / "two.npz", tmp_path / "labels.csv"
    np.savez(path, features=embedded.features[rows].numpy(), labels=labels.numpy())
    result = run("solve", "--features", path, "--out", out, "--json", tmp_path / "s.json")
    assert result.exit_code == 0, result.output
    assert "70 rows labelled from 10 with tim-auto" in result.output
    assert "The estimated class imbalance is" in result.output
    with out.open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["row"]) for line in lines] == [*range(5, 40), *range(45, 80)]
    right = [int(line["label"]) == truth[int(line["row"])] for line in lines]
    assert np.mean(right) > 0.8
    assert all(0.5 <= float(line["confidence"]) <= 1 for line in lines)
    summary = json.loads((tmp_path / "s.json").read_text())
    assert summary["labelled_now"] == sum(summary["classes"].values()) == 70
    assert "weight of the marginal entropy" in summary["note"]


def test_solve_warns_about_few_queries(tmp_path, embedded):
    labels = torch.tensor([0, 0, 1, 1, -1])
    write_features(tmp_path / "a.safetensors", FeatureTable(embedded.features[:5], labels))
    arguments = ("solve", "--features", tmp_path / "a.safetensors", "--out", tmp_path / "l.csv")
    result = run(*arguments, "--method", "tim-adm")
    assert result.exit_code == 0
    assert (
        "Warning: 1 unlabelled samples for 2 classes are fewer than three per class"
        in result.stderr
    )
    assert not run(*arguments, "--method", "prototype").stderr
    alone = run(*arguments)
    assert not alone.stderr
    assert "1 queries for 2 classes are too few to use them together" in alone.output


def test_solve_takes_any_class_name(tmp_path, embedded):
    labels = torch.tensor([0, 0, 1, 1, *[-1] * 8])
    table = FeatureTable(embedded.features[:12], labels, embedded.base_mean, ("[/red]", "a,b"))
    write_features(tmp_path / "a.safetensors", table)
    result = run("solve", "--features", tmp_path / "a.safetensors", "--out", tmp_path / "l.csv")
    assert result.exit_code == 0, result.output
    assert "[/red]" in result.output
    with (tmp_path / "l.csv").open() as file:
        assert {line["label"] for line in csv.DictReader(file)} <= {"[/red]", "a,b"}


def test_solve_does_not_warn_for_methods_that_take_samples_one_by_one(tmp_path, embedded):
    labels = torch.tensor([0, 0, 1, 1, -1])
    table = FeatureTable(embedded.features[:5], labels, embedded.base_mean)
    write_features(tmp_path / "a.safetensors", table)
    arguments = ("solve", "--features", tmp_path / "a.safetensors", "--out", tmp_path / "l.csv")
    assert not run(*arguments, "--method", "simpleshot").stderr


def test_one_task_has_no_interval(features, tmp_path):
    out = tmp_path / "r.json"
    result = run("bench", "--features", features, "--queries", 5, "--tasks", 1, "--json", out)
    assert "nan" not in result.output
    assert [row["ci95"] for row in json.loads(out.read_text())] == [None] * 4


def test_settings_may_be_written_as_in_python(features, tmp_path):
    out = tmp_path / "r.json"
    result = run(
        "bench", "--features", features, "--methods", "tim-adm", "--ways", 2, "--shots", 1,
        "--queries", 5, "--tasks", 2, "--json", out,
        "--set", "linearized=False", "--set", "class_prior=0.7,0.3", "--set", "tolerance=None",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    [row] = json.loads(out.read_text())
    assert row["settings"]["linearized"] is False
    assert row["settings"]["class_prior"] == [0.7, 0.3]
    assert row["settings"]["tolerance"] is None


def test_interrupt_is_reported_and_finished_rows_are_kept(features, tmp_path, monkeypatch):
    from infoshot.benchmark import api

    score_cell = api.score_cell

    def second_is_interrupted(table, method, protocol, **options):
        if method.name != "prototype":
            raise KeyboardInterrupt
        return score_cell(table, method, protocol, **options)

    monkeypatch.setattr(api, "score_cell", second_is_interrupted)
    out = tmp_path / "r.json"
    result = run("bench", "--features", features, "--queries", 5, "--tasks", 2, "--json", out)
    assert result.exit_code == 130
    assert f"Interrupted: finished rows in {out}: 2; rerun the command to" in result.stderr
    assert len(json.loads(out.read_text())) == 2
    out.write_text("an earlier result")
    result = run("bench", "--features", features, "--queries", 5, "--tasks", 2, "--json", out)
    assert "Interrupted: rerun the command to" in result.stderr
    assert out.read_text() == "an earlier result"


def test_methods_lists_assumptions(tmp_path):
    result = run("methods", "--json", tmp_path / "m.json")
    assert result.exit_code == 0
    for name in ("prototype", "simpleshot", "tim-adm", "tim-gd"):
        assert f"{name}: " in result.output
    assert "learning_rate=0.0001" in result.output
    entries = {entry["method"]: entry for entry in json.loads((tmp_path / "m.json").read_text())}
    assert {"prototype", "simpleshot", "tim-adm", "tim-gd"} <= set(entries)
    assert entries["tim-adm"]["assumes"] == ["balance"]
    assert entries["pt-map"]["assumes"] == ["class-counts"]
    assert entries["simpleshot"]["assumes"] == ["base-mean"]
    assert entries["tim-auto"]["assumes"] == []
    assert "the number of queries of each class is known" in " ".join(result.output.split())
    assert entries["tim-gd"]["settings"]["learning_rate"] == 1e-4
    assert "share=0.4667," in result.output
    assert entries["prototype+t"]["settings"]["share"] == 35 / 75


BAD = {
    "unknown method": (["bench", "--methods", "tim-adn"], "Unknown method 'tim-adn'. Did you mean 'tim-adm'?"),
    "missing file": (["bench", "--features", "nowhere.npz"], "nowhere.npz: there is no such file."),
    "shots that are words": (["bench", "--shots", "one"], "--shots must be whole numbers separated by commas; got 'one'."),
    "too many ways": (["bench", "--ways", "21"], "--ways must be at most 20"),
    "too many queries": (["bench", "--queries", "700"], "--shots + --queries must be at most 600 for class 'n01930112'"),
    "no tasks": (["bench", "--tasks", "0"], "tasks must be a whole number of at least 1; got 0."),
    "negative seed": (["bench", "--seed", "-1"], "seed must be a whole number of at least 0; got -1."),
    "no such device": (["bench", "--device", "tpu"], "device 'tpu' is not available"),
    "no such dtype": (["bench", "--dtype", "float31"], "Unknown dtype 'float31'. Did you mean 'float32'?"),
    "no such setting": (["bench", "--set", "tim-adm.tau=3"], "Unknown setting of tim-adm 'tau'."),
    "setting of nobody": (["bench", "--set", "tau=3"], "Unknown setting of the methods (prototype, tim-adm) 'tau'. Known: class_prior, "),
    "prior of the wrong length": (["bench", "--methods", "prototype,tim-adm", "--set", "class_prior=1,2"], "class_prior must hold one weight for each of the 5 classes; got 2."),
    "features would be overwritten": (["solve", "--features", "EMBEDDED", "--out", "EMBEDDED"], "would replace an input or another output."),
    "rows would replace features": (["bench", "--features", "EMBEDDED", "--json", "EMBEDDED"], "would replace an input or another output."),
    "two outputs in one file": (["solve", "--features", "EMBEDDED", "--out", "x", "--json", "./x"], "would replace an input or another output."),
    "setting of a method not chosen": (["bench", "--set", "tim-gd.n_steps=3"], "none of the methods (prototype, tim-adm) is 'tim-gd'."),
    "setting without value": (["bench", "--set", "n_steps"], "a setting must look like NAME=VALUE, such as temperature=10; got 'n_steps'"),
    "bad value": (["bench", "--set", "n_steps=0"], "TimAdm: n_steps must be a whole number of at least 1; got 0."),
    "unwritable output": (["bench", "--tasks", "2", "--json", "no/such/folder.json"], "no/such/folder.json: cannot be written"),
    "output is a folder": (["bench", "--json", "."], "cannot be written (Is a directory)"),
    "two methods for solve": (["solve", "--features", "EMBEDDED", "--out", "l.csv", "--method", "tim-adm,tim-gd"], "Unknown method 'tim-adm,tim-gd'"),
    "nothing unlabelled": (["solve", "--features", "EMBEDDED", "--out", "labels.csv"], "there is nothing to label"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence_and_exit_code_2(case, tmp_path, monkeypatch):
    from infoshot.features import default_features_path

    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[case]
    arguments = [str(default_features_path()) if a == "EMBEDDED" else a for a in arguments]
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_missing_option_is_wrong_usage():
    assert run("solve", "--out", "x.csv").exit_code == 2
    assert run("bench", "--shot", "1").exit_code == 2
    assert run("benhc").exit_code == 2


def test_internal_failure_has_exit_code_1(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("boom")

    monkeypatch.setattr("infoshot.benchmark.api.score_cell", fail)
    result = run("bench", "--tasks", 1)
    assert result.exit_code == 1
    progress, error = result.stderr.splitlines()
    assert progress.startswith("prototype 5-way 1-shot")
    assert error.startswith("Error: RuntimeError: boom (test_cli.py, line ")
    assert error.endswith("; --debug shows the traceback).")


def test_installed_command_and_debug_anywhere(tmp_path):
    plain = infoshot("bench", "--features", "nowhere.npz", cwd=tmp_path)
    assert (plain.returncode, plain.stdout) == (2, "")
    assert plain.stderr == "Error: nowhere.npz: there is no such file.\n"
    for arguments in (
        ("--debug", "bench", "--features", "nowhere.npz"),
        ("bench", "--features", "nowhere.npz", "--debug"),
    ):
        debug = infoshot(*arguments, cwd=tmp_path)
        assert debug.returncode != 0
        assert "Traceback" in debug.stderr


def test_demo_writes_a_figure_and_says_what_is_next(tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.cli.demo._TASKS", {"prototype": 50, "tim-adm": 50, "tim-gd": 2})
    monkeypatch.setattr("infoshot.cli.demo._CURVE_TASKS", 2)
    monkeypatch.setattr("infoshot.cli.demo._IMBALANCED_TASKS", 20)
    monkeypatch.setattr("infoshot.cli.demo._PHOTOS", 4)
    result = run("demo", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "convergence.png").read_bytes().startswith(b"\x89PNG")
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())) == 12
    assert "What to try next" in result.output
    (tmp_path / "file").touch()
    assert "this folder cannot be created" in run("demo", "--out", tmp_path / "file").stderr
