"""Real processes that are interrupted or killed while they encode; the command then resumes."""

import os
import signal
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from infoshot.features.api import extract
from tests.image_folders import make_folders
from tests.labelling.commands import rows, run

N_IMAGES, BATCH, STOP_AT = 100, 4, 20  # the twentieth batch is never finished
NETWORK = """
import os, time
from pathlib import Path
import torch

log = Path(os.environ["INFOSHOT_TEST_LOG"])

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Conv2d(3, 6, 5, stride=4)

    def forward(self, images):
        if len(images) == 4:  # not the trial of a new encoder
            log.touch()
            log.write_text(log.read_text() + "batch ")
            if log.read_text().count("batch") == int(os.environ.get("INFOSHOT_TEST_STOP_AT", 0)):
                print("ready", flush=True)
                time.sleep(300)
        return self.layer(images).flatten(2).mean(2)

def make():
    return Net()
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    return make_folders(folder, N_IMAGES // 2, size=(20, 24), splits={"test": "ab"})


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A file in which the network counts batches; the test can import the network too."""
    (tmp_path / "counting_net.py").write_text(NETWORK)
    monkeypatch.setenv("INFOSHOT_TEST_LOG", str(tmp_path / "log"))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "log"
    sys.modules.pop("counting_net", None)


def stop(arguments, how, folder):
    """Start a command, and end it by a signal in the middle; exit code and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "infoshot", *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "INFOSHOT_TEST_STOP_AT": str(STOP_AT),
             "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    process.send_signal(how)
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def count_cached():
    """Count the images in the cache."""
    from infoshot.core.cache_folder import default_cache_folder

    return sum(
        len(load_file(part)["digests"])
        for part in default_cache_folder().glob("*/part-*.safetensors")
    )


def count_batches(log):
    """Count the batches since the last call."""
    n_batches = log.read_text().count("batch")
    log.unlink()
    return n_batches


# An interrupted process keeps all that it has encoded, a killed one all but the last 16 batches.
ENDS = {"interrupt": (signal.SIGINT, 130, 76), "kill": (signal.SIGKILL, -signal.SIGKILL, 64)}


@pytest.mark.parametrize("end", ENDS)
def test_extraction_resumes_with_the_missing_images(end, images, log, tmp_path):
    how, code, n_kept = ENDS[end]
    settings = ("--resize", 20, "--crop", 16, "--device", "cpu", "--batch-size", BATCH)
    arguments = (
        "extract", "--dataset", "folder", "--root", images, "--backbone", "counting_net:make",
        "--out", tmp_path / "features", *settings,
    )  # fmt: skip
    returned, said = stop(arguments, how, tmp_path)
    assert returned == code
    if end == "interrupt":
        expected = "the features of 76 images are cached; rerun the command to resume."
        assert said.splitlines()[-1] == f"Interrupted: {expected}"
        assert "Traceback" not in said
    assert not (tmp_path / "features").exists()
    assert count_cached() == n_kept
    assert count_batches(log) == STOP_AT
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert count_batches(log) == (N_IMAGES - n_kept) // BATCH
    extract(
        "folder", images, backbone="counting_net:make", out=tmp_path / "undisturbed", resize=20,
        crop=16, device="cpu", batch_size=BATCH, cache=tmp_path / "empty",
    )  # fmt: skip
    assert count_batches(log) == N_IMAGES // BATCH
    assert (tmp_path / "features").read_bytes() == (tmp_path / "undisturbed").read_bytes()


def test_labelling_says_how_many_images_it_has_kept(images, log, tmp_path):
    make_folders(tmp_path / "examples", 3, size=(24, 20), splits={"": "ab"})
    arguments = (
        "label", tmp_path / "examples", images, "--out", tmp_path / "run",
        "--backbone", "counting_net:make", "--method", "prototype", "--device", "cpu",
    )  # fmt: skip
    returned, said = stop(arguments, signal.SIGINT, tmp_path)
    assert returned == 130
    n_kept = count_cached()
    expected = f"the features of {n_kept} images are cached; rerun the command to resume."
    assert said.splitlines()[-1] == f"Interrupted: {expected}"
    assert n_kept == 6 + (STOP_AT - 3) * BATCH  # six examples took two batches
    count_batches(log)
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert count_batches(log) == (N_IMAGES + 6 - n_kept) // BATCH
    assert len(rows(tmp_path / "run" / "labels.csv")) == N_IMAGES
