"""Real processes killed at random moments; the same command then ends with the same tensors.

Twenty seeded moments each for a training, an extraction and a labelling, spread over the time in
which the undisturbed command works (imports aside).
"""

import csv
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
import torch

from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import load_checkpoint, load_training, save_checkpoint
from infoshot.features import read_features
from infoshot.labelling.classifier import load_classifier
from infoshot.labelling.run_folder import CSV_COLUMNS
from tests.image_folders import make_folders

pytestmark = pytest.mark.slow

N_MOMENTS = 20
COMMAND = """
import sys
from infoshot.cli.app import app
import torch._dynamo, matplotlib.figure, infoshot.training, pyarrow.parquet
print("ready", flush=True)
app(args=sys.argv[1:])
"""


def _start(arguments):
    """Start the command and wait until it has imported everything."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def _finish(arguments):
    """Run to the end; how long the work took, and what was said."""
    process = _start(arguments)
    start = time.perf_counter()
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return time.perf_counter() - start, said


def _kill_after(arguments, seconds):
    """Kill without warning; whether it was still at work."""
    process = _start(arguments)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def _moments(seconds):
    generator = random.Random(0)
    return [generator.uniform(0, seconds) for _ in range(N_MOMENTS)]


def _check_whole(out):
    """Every file under a final name can be read, against its digest; how many epochs are kept."""
    for description in out.glob("*/checkpoint.json"):
        load_checkpoint(description.parent)
    for path in out.glob("*/*-*.safetensors"):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert path.stem.endswith(digest[:16])
    if not (out / "last" / "checkpoint.json").exists():
        return 0
    return len(load_training(out / "last").facts["epochs"])


def _tensors(out):
    """Digests of all weights, momentum and classifier."""
    state = load_training(out / "last").tensors
    return [load_checkpoint(out / name).digest for name in ("best", "last")], state


def _check_logs(out):
    """Every epoch is logged once."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()[1:]]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5, 6]
    with (out / "log.csv").open(newline="") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == list("123456")


def test_killed_training_ends_with_the_same_tensors(tmp_path):
    root = make_folders(tmp_path / "data", 10)
    common = ["train", "--dataset", "folder", "--root", root, "--backbone", "conv4", "--epochs", 6,
              "--batch-size", 8, "--lr", 0.02, "--device", "cpu"]  # fmt: skip
    seconds, _ = _finish([*common, "--out", tmp_path / "undisturbed"])
    digests, state = _tensors(tmp_path / "undisturbed")
    at_work = 0
    for number, moment in enumerate(_moments(seconds)):
        out = tmp_path / str(number)
        at_work += _kill_after([*common, "--out", out], moment)
        n_epochs = _check_whole(out)
        _, said = _finish([*common, "--out", out])
        assert (f"Resuming after epoch {n_epochs} of" in said) == (0 < n_epochs < 6)
        assert (f"All 6 epochs in {out} are already done." in said) == (n_epochs == 6)
        own_digests, own_state = _tensors(out)
        assert own_digests == digests
        assert own_state.keys() == state.keys()
        assert all(torch.equal(own_state[name], value) for name, value in state.items())
        _check_logs(out)
    assert at_work >= N_MOMENTS // 2


def test_killed_extraction_ends_with_the_same_file(tmp_path):
    root = make_folders(tmp_path / "data", 120, splits={"train": "ab", "test": "cd"})
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "checkpoint", "conv4", make_backbone("conv4").state_dict())
    common = ["extract", "--dataset", "folder", "--root", root, "--device", "cpu",
              "--checkpoint", tmp_path / "checkpoint", "--base-mean"]  # fmt: skip
    whole = tmp_path / "undisturbed.safetensors"
    seconds, _ = _finish([*common, "--out", whole])
    at_work = 0
    for number, moment in enumerate(_moments(seconds)):
        folder = tmp_path / str(number)
        folder.mkdir()
        arguments = [*common, "--out", folder / "f.safetensors", "--cache", folder / "cache"]
        at_work += _kill_after(arguments, moment)
        if (folder / "f.safetensors").exists():
            read_features(folder / "f.safetensors")
        _check_cache(folder / "cache")
        _finish(arguments)
        assert (folder / "f.safetensors").read_bytes() == whole.read_bytes()
    assert at_work >= N_MOMENTS // 2


def _check_label_files(folder, n_photos):
    """Whatever is under a final name is whole."""
    run = folder / "run"
    if (run / "labels.csv").exists():
        with (run / "labels.csv").open(newline="") as file:
            lines = list(csv.reader(file))
        assert len(lines) == n_photos + 1
        assert all(len(line) == len(CSV_COLUMNS) for line in lines)
    if (run / "labels.parquet").exists():
        assert pq.read_table(run / "labels.parquet").num_rows == n_photos
    if (run / "classifier.safetensors").exists():
        load_classifier(run / "classifier.safetensors")
    if (run / "run.json").exists():
        assert json.loads((run / "run.json").read_text())["counts"]["photos"] == n_photos
    if (run / "report.html").exists():
        assert (run / "report.html").read_text().endswith("</html>\n")
    if (run / "imagefolder").exists():
        exported = [path for path in (run / "imagefolder").glob("*/*") if path.is_file()]
        assert len(exported) == n_photos
    _check_cache(folder / "cache")


def _check_cache(folder):
    """Every part of the cache is complete: its name contains the digest of its content."""
    for part in folder.rglob("part-*.safetensors"):
        assert part.stem.endswith(hashlib.sha256(part.read_bytes()).hexdigest()[:32])


def test_killed_labelling_ends_with_the_same_labels(tmp_path):
    make_folders(tmp_path, 130, size=(60, 60), splits={"all": "abc"})
    for path in sorted((tmp_path / "all").glob("*/*.png")):
        example = tmp_path / "examples" / path.parent.name / path.name
        photo = tmp_path / "photos" / f"{path.parent.name}{path.name}"
        target = example if int(path.stem) < 8 else photo
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "checkpoint", "conv4", make_backbone("conv4").state_dict())
    n_photos = len(list((tmp_path / "photos").iterdir()))

    def command(folder):
        return ["label", tmp_path / "examples", tmp_path / "photos", "--out", folder / "run",
                "--backbone", tmp_path / "checkpoint", "--cache", folder / "cache",
                "--export", "imagefolder", "--device", "cpu"]  # fmt: skip

    whole = tmp_path / "undisturbed"
    seconds, _ = _finish(command(whole))
    at_work = 0
    for number, moment in enumerate(_moments(seconds)):
        folder = tmp_path / str(number)
        at_work += _kill_after(command(folder), moment)
        _check_label_files(folder, n_photos)
        _finish(command(folder))
        _check_label_files(folder, n_photos)
        for name in ("labels.csv", "labels.parquet", "classifier.safetensors", "report.html"):
            assert (folder / "run" / name).read_bytes() == (whole / "run" / name).read_bytes()
        assert not list((folder / "run").rglob("*.infoshot-part"))
    assert at_work >= N_MOMENTS // 2
