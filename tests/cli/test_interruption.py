"""What a command says when it is interrupted."""

import pytest

from infoshot.cli.app import app
from tests.labelling.commands import run

RESUME = "rerun the command to resume"
SAID = {
    "label": f"{RESUME}.",
    "predict": f"{RESUME}.",
    "review": f"{RESUME}.",
    "extract": f"{RESUME}.",
    "extract-shards": f"{RESUME} after the last finished shard.",
    "train": f"{RESUME} after the last epoch that was written.",
    "reproduce": f"{RESUME}.",
    "solve-shards": f"{RESUME} after the last iteration that was written.",
}
AGAIN = "rerun the command to start from the beginning."
# What each command calls, and the arguments it needs.
COMMANDS = {
    "label": ("infoshot.labelling.label", "examples photos --out run"),
    "predict": ("infoshot.labelling.predict", "run photos"),
    "extract": ("infoshot.features.api.extract", "--dataset folder --root photos --out f"),
    "extract-shards": ("infoshot.features.api.extract_shards", "photos --out shards"),
    "train": (
        "infoshot.training.train",
        "--dataset folder --root photos --backbone conv4 --out run",
    ),
    "reproduce": ("infoshot.reproduction.api.reproduce", "--out report"),
    "solve-shards": (
        "infoshot.cli.solve_shards.solve_shards",
        "--support f --queries shards --out run",
    ),
    "bench": ("infoshot.cli.bench.run_bench", ""),
    "solve": ("infoshot.labelling.label_table", "--features f --out labels.csv"),
    "audit": ("infoshot.labelling.draw_audit", "run"),
    "suggest": ("infoshot.labelling.suggest", "run"),
    "review": ("infoshot.cli.review.open_review", "run"),
    "demo": ("infoshot.cli.demo.bench", "--out demo"),
    "data": ("infoshot.cli.data.inspect_dataset", "inspect --dataset folder --root photos"),
    "methods": ("infoshot.cli.methods.stdout", ""),
    "systems": ("infoshot.cli.systems.stdout", ""),
}


def test_every_command_is_listed():
    import typer

    assert set(typer.main.get_command(app).commands) == set(COMMANDS)
    assert set(SAID) < set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_resume_say_so_and_others_do_not(command, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    called, arguments = COMMANDS[command]
    monkeypatch.setattr(called, interrupt)
    result = run(command, *arguments.split())
    assert result.exit_code == 130
    assert result.stderr == f"Interrupted: {SAID.get(command, AGAIN)}\n"


def test_notes_tell_what_was_kept(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        stop = KeyboardInterrupt()
        stop.add_note("the features of 3 images are cached")
        raise stop

    monkeypatch.setattr("infoshot.labelling.predict", interrupt)
    result = run("predict", tmp_path, tmp_path)
    assert result.stderr == f"Interrupted: the features of 3 images are cached; {RESUME}.\n"


def test_bench_without_finished_rows_does_not_speak_of_rows(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("infoshot.benchmark.api.score_cell", interrupt)
    out = tmp_path / "rows.json"
    result = run("bench", "--tasks", 2, "--json", out)
    assert result.stderr.splitlines()[-1] == f"Interrupted: {AGAIN}"
    assert not out.exists()
