"""Every numeric option of every command: impossible numbers are refused first, in one sentence."""

import dataclasses
import re
from importlib import import_module
from typing import get_args, get_type_hints

import numpy as np
import pytest

from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import save_checkpoint
from infoshot.cli._commands import COMMANDS
from tests.image_folders import make_folders
from tests.labelling.commands import run

HUGE, TOO_LONG = "1000000000000", "99999999999999999999999999"
WRONG_COUNTS = ("0", "-1", "nan", "1.5")
NOT_FINITE = ("nan", "inf", "-inf", "-1")


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a command with what it must refuse, and what else the command needs."""

    command: str
    name: str
    refused: tuple[str, ...]
    others: tuple[str, ...] = ()


BENCH = (
    "--features",
    "{table}",
    "--methods",
    "prototype,tim-adm",
    "--tasks",
    "2",
    "--queries",
    "2",
)
SHARDS = ("--support", "{table}", "--queries", "{shards}", "--out", "{out}")
REPRODUCE = ("--features", "{table}", "--only", "table1", "--out", "{out}")
TRAIN = ("--dataset", "folder", "--root", "{images}", "--backbone", "conv4", "--out", "{out}")
EXTRACT = (
    "--dataset",
    "folder",
    "--root",
    "{images}",
    "--checkpoint",
    "{weights}",
    "--out",
    "{out}",
)
ON_RAY = {
    "extract-shards": ("{images}/test", "--out", "{out}"),
    "solve-shards": SHARDS,
    "predict": ("{images}", "{images}/test", "--out", "{out}.csv"),
}
OPTIONS = [
    Option("bench", "--ways", (*WRONG_COUNTS, "1", HUGE, TOO_LONG), BENCH),
    Option("bench", "--shots", (*WRONG_COUNTS, HUGE, TOO_LONG), BENCH),
    Option("bench", "--queries", (*WRONG_COUNTS, HUGE, TOO_LONG), BENCH),
    Option("bench", "--tasks", (*WRONG_COUNTS, "10000000000", HUGE, TOO_LONG), BENCH),
    Option("bench", "--threads", (*WRONG_COUNTS, "100000", HUGE, TOO_LONG), BENCH),
    Option("bench", "--seed", ("-1", "nan", "1.5", "9223372036854775808", TOO_LONG), BENCH),
    Option("bench", "--regime", tuple(f"dirichlet:{a}" for a in ("0", "-1", "nan", "inf", "1e308")), BENCH),
    Option("bench", "--regime", tuple(f"{kind}:{n}" for kind in ("few", "open", "effective") for n in ("0", "-1", "nan", "inf", "1e12", "1e300", "0.5")), BENCH),
    Option("bench", "--set", ("n_steps=0", "n_steps=-1", f"n_steps={HUGE}", f"n_steps={TOO_LONG}", "n_steps=nan", "n_steps=1.5"), BENCH),
    Option("bench", "--set", tuple(f"temperature={x}" for x in (*NOT_FINITE, "0", "1e308")), BENCH),
    Option("bench", "--set", tuple(f"tolerance={x}" for x in (*NOT_FINITE, "0")), BENCH),
    Option("solve", "--set", (f"n_trial_steps={HUGE}", f"n_steps={HUGE}", "smoothing=nan", "n_neighbours=0"), ("--features", "{half}", "--out", "{out}.csv")),
    Option("solve-shards", "--tolerance", (*NOT_FINITE, "0"), SHARDS),
    Option("solve-shards", "--set", (f"n_steps={HUGE}", "temperature=1e308"), SHARDS),
    Option("reproduce", "--tasks", (*WRONG_COUNTS, HUGE, TOO_LONG), REPRODUCE),
    Option("reproduce", "--gradient-tasks", (*WRONG_COUNTS, HUGE, TOO_LONG), REPRODUCE),
    Option("reproduce", "--network-tasks", (*WRONG_COUNTS, HUGE, TOO_LONG), REPRODUCE),
    Option("reproduce", "--seed", ("-1", "nan", TOO_LONG), REPRODUCE),
    Option("train", "--epochs", (*WRONG_COUNTS, HUGE, TOO_LONG), TRAIN),
    Option("train", "--batch-size", WRONG_COUNTS, TRAIN),
    Option("train", "--lr", (*NOT_FINITE, "0", "1e308"), TRAIN),
    Option("train", "--seed", ("-1", "nan", TOO_LONG), TRAIN),
    Option("train", "--set", (f"val_tasks={HUGE}", f"epochs={HUGE}", "weight_decay=nan", "jitter=inf"), TRAIN),
    Option("extract", "--resize", (*WRONG_COUNTS, "15", "4097", HUGE, TOO_LONG), EXTRACT),
    Option("extract", "--crop", (*WRONG_COUNTS, "15", "4097", HUGE, TOO_LONG), EXTRACT),
    Option("extract", "--batch-size", (*WRONG_COUNTS, HUGE, TOO_LONG), EXTRACT),
    Option("extract-shards", "--shard-size", WRONG_COUNTS, ("{images}/test", "--out", "{out}", "--backbone", "{weights}")),
    Option("label", "--threshold", (*NOT_FINITE, "1.1", "1e308"), ("{images}/test", "{images}/val", "--out", "{out}")),
    Option("label", "--coverage", (*NOT_FINITE, "0", "1", "1.1", "1e308"), ("{images}/test", "{images}/val", "--out", "{out}")),
    Option("label", "--text-weight", (*WRONG_COUNTS, HUGE, TOO_LONG), ("{images}/test", "{images}/val", "--out", "{out}")),
    Option("label", "--target", (*NOT_FINITE, "0", "1", "1.1", "1e308"), ("{images}/test", "{images}/val", "--out", "{out}")),
    Option("audit", "--n", WRONG_COUNTS, ("{images}",)),
    Option("audit", "--seed", ("-1", "nan", TOO_LONG), ("{images}",)),
    Option("suggest", "--n", WRONG_COUNTS, ("{images}",)),
    *(
        Option(command, name, refused, (*others, "--engine", "ray"))
        for command, others in ON_RAY.items()
        for name, refused in (
            ("--workers", (*WRONG_COUNTS, HUGE, TOO_LONG)),
            ("--cpus-per-worker", (*WRONG_COUNTS, HUGE, TOO_LONG)),
            ("--gpus-per-worker", (*NOT_FINITE, "1.5", "1e308")),
        )
    ),
    Option("review", "--port", (*WRONG_COUNTS, "65536", HUGE, TOO_LONG), ("{images}",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A table with six classes of 25 rows, the same with unlabelled rows, shards, and images."""
    folder = tmp_path_factory.mktemp("numbers")
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 25)
    features = generator.normal(size=(6, 8))[labels] + 0.3 * generator.normal(size=(150, 8))
    np.savez(folder / "table.npz", features=features, labels=labels)
    np.savez(folder / "half.npz", features=features, labels=np.where(labels % 2, -1, labels))
    (folder / "shards").mkdir()
    np.save(folder / "shards" / "a.npy", features.astype(np.float32))
    make_folders(folder / "images", 2, size=(16, 16))
    save_checkpoint(folder / "weights", "conv4", make_backbone("conv4").state_dict())
    return {
        "table": folder / "table.npz",
        "half": folder / "half.npz",
        "shards": folder / "shards",
        "images": folder / "images",
        "weights": folder / "weights",
    }


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.command} {option.name}")
def test_impossible_numbers_are_refused_in_one_sentence(option, inputs, tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.core.parallel.ThreadPoolExecutor", None)  # nothing may be started
    out = tmp_path / "out"
    others = [text.format(**inputs, out=out) for text in option.others]
    for value in option.refused:
        result = run(option.command, *others, option.name, value)
        assert result.exit_code == 2, f"{value}: {result.output} {result.exception!r}"
        if "Usage:" not in result.stderr:  # the parser says it in a box
            (sentence,) = [line for line in result.stderr.splitlines() if "Error: " in line]
            assert re.search(r"(must|needs|Unknown)", sentence), sentence
        assert not list(tmp_path.glob("**/*.safetensors"))


def test_every_numeric_option_is_in_the_table():
    functions = {}
    for name, (place, _) in COMMANDS.items():
        module, _, attribute = place.partition(":")
        function = getattr(import_module(f"infoshot.cli.{module}"), attribute)
        for command in getattr(function, "registered_commands", ()):  # of a group
            functions[command.name] = command.callback
        if callable(function) and not hasattr(function, "registered_commands"):
            functions[name] = function
    numeric = {
        (command, "--" + name.replace("_", "-"))
        for command, function in functions.items()
        for name, kind in get_type_hints(function).items()
        if {int, float} & {kind, *get_args(kind)}
    }
    assert ("bench", "--tasks") in numeric
    assert numeric <= {(option.command, option.name) for option in OPTIONS}


def test_large_numbers_that_are_possible_are_accepted(inputs, tmp_path):
    arguments = [text.format(**inputs) for text in BENCH]
    assert run("bench", *arguments, "--seed", str(2**63 - 1), "--threads", "64").exit_code == 0
