"""A solve over shards gives the labels of the solve in memory, for any cut into shards."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from infoshot import TimAdm, TimAuto, solve
from infoshot.core.errors import ImbalanceWarning
from infoshot.shards import solve_shards
from infoshot.shards.shard_reader import open_shard
from infoshot.solvers.sharded.rows import Piece, Rows
from infoshot.solvers.sharded.sharded_adm import ShardedAdm
from tests.labelling.commands import run
from tests.shards.made_shards import N_CLASSES, SIZES, make_shards

CLEAR = 1e-3


@pytest.fixture(params=["float16", "float32"])
def on_disk(request, tmp_path):
    return make_shards(tmp_path, half=request.param == "float16")


def read_labels(out):
    """Labels of all shards in their order."""
    parts = [load_file(out / "labels" / f"part{number}.safetensors") for number in range(5)]
    assert [len(part["labels"]) for part in parts] == list(SIZES)
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def check_same(out, probabilities, atol):
    """Labels where the margin is clear, confidences and margins everywhere."""
    found = read_labels(out)
    best, place = probabilities.topk(2, dim=-1)
    margin = best[:, 0] - best[:, 1]
    clear = margin > CLEAR
    assert clear.float().mean() > 0.9
    assert torch.equal(found["labels"].long()[clear], place[clear, 0])
    torch.testing.assert_close(found["confidence"].double(), best[:, 0], atol=atol, rtol=0)
    torch.testing.assert_close(found["margin"].double(), margin, atol=atol, rtol=0)


@pytest.mark.parametrize("n_steps", [10, 150])
@pytest.mark.parametrize("prior", [None, [1, 2, 3, 1, 1, 1, 1]])
def test_sharded_equals_unsharded(on_disk, tmp_path, n_steps, prior):
    solver = TimAdm(n_steps=n_steps, class_prior=prior)
    expected = solve(solver, on_disk.task()).probabilities[0]
    shares = None if prior is None else dict(zip("gfedcba", reversed(prior), strict=True))
    summary = solve_shards(
        on_disk.support, on_disk.queries, tmp_path / "out", settings={"n_steps": n_steps},
        prior=shares,
    )  # fmt: skip
    check_same(tmp_path / "out", expected, 1e-4)
    assert (summary.n_queries, summary.n_steps) == (sum(SIZES), n_steps)
    counts = read_labels(tmp_path / "out")["labels"].long().bincount(minlength=N_CLASSES)
    assert list(summary.counts.values()) == counts.tolist()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_chunks_and_threads_do_not_matter(on_disk, tmp_path, monkeypatch, threads):
    monkeypatch.setattr("infoshot.shards.shard_task._FEWEST_ROWS", 37)
    monkeypatch.setattr("infoshot.shards.shard_task._NUMBERS", 1)
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    expected = solve(TimAdm(n_steps=10), on_disk.task()).probabilities[0]
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", settings={"n_steps": 10})
    check_same(tmp_path / "out", expected, 1e-4)


@pytest.mark.parametrize("shares", [None, [20, 1, 1, 1, 1, 1, 1]])
def test_tim_auto_decides_as_in_memory(tmp_path, monkeypatch, shares):
    """With smoothing off and all queries in the sample, it is the same solve without others."""
    monkeypatch.setattr("infoshot.solvers.tim_auto._MOST_TRIAL_QUERIES", 2400)
    monkeypatch.setattr("infoshot.shards.sample_check._LEAST", 2400)
    on_disk = make_shards(tmp_path, shares=shares)
    task = on_disk.task()
    expected = solve(TimAuto(smoothing=0), task)
    summary = solve_shards(
        on_disk.support, on_disk.queries, tmp_path / "out", method="tim-auto",
        settings={"smoothing": 0},
    )  # fmt: skip
    assert summary.note.split("; with")[0] == expected.notes[0].split("; with")[0]
    assert summary.note.split("chance. ")[1] == expected.notes[0].split("chance. ")[1]
    temperature = float(expected.temperatures[0])
    log_p = TimAuto(temperature=temperature).classify(task.z_qry, expected.prototypes)
    check_same(tmp_path / "out", log_p[0].exp(), 1e-4)


def test_tim_adm_warns_about_imbalanced_queries(tmp_path):
    shares = [20, 1, 1, 1, 1, 1, 1]
    on_disk, settings = make_shards(tmp_path, shares=shares), {"n_steps": 2}
    with pytest.warns(ImbalanceWarning, match="can greatly reduce the accuracy") as caught:
        solve_shards(on_disk.support, on_disk.queries, tmp_path / "a", settings=settings)
    assert [warning.filename for warning in caught] == [__file__]
    prior = dict(zip("abcdefg", shares, strict=True))  # with it there is no warning
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "b", settings=settings, prior=prior)


def test_tolerance_stops_the_solve(on_disk, tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.shards.shard_solve._WATCHED", 2400)
    summary = solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", tolerance=0.01)
    assert summary.converged
    assert 2 < summary.n_steps < 150
    last, before, earlier = (
        solve(TimAdm(n_steps=summary.n_steps - back), on_disk.task()).probabilities
        for back in range(3)
    )
    assert (last - before).abs().max() < 0.01 < (before - earlier).abs().max()
    check_same(tmp_path / "out", last[0], 1e-4)


def test_command_labels_and_prints_a_summary(on_disk, tmp_path):
    result = run(
        "solve-shards", "--support", on_disk.support, "--queries", on_disk.queries,
        "--out", tmp_path / "out", "--set", "n_steps=10", "--prior", "a=1,b=1,c=1,d=1,e=1,f=1,g=2",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "2,400 rows of 5 shards labelled after 10 iterations" in result.stdout
    facts = json.loads((tmp_path / "out" / "run.json").read_text())
    assert sum(facts["counts"].values()) == 2400
    assert facts["settings"]["class_prior"] == [1, 1, 1, 1, 1, 1, 2]
    with safe_open(tmp_path / "out" / "labels" / "part0.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["labels"])["class_names"] == list("abcdefg")


def test_finished_solve_is_not_done_again(on_disk, tmp_path):
    out, settings = tmp_path / "out", {"n_steps": 5}
    solve_shards(on_disk.support, on_disk.queries, out, settings=settings)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("part*")}
    facts = (out / "run.json").read_bytes()
    summary = solve_shards(str(on_disk.support), str(on_disk.queries), str(out), settings=settings)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("part*")} == before
    assert summary.was_finished
    assert (out / "run.json").read_bytes() == facts
    (out / "run.json").unlink()  # as if the process had been killed before its last file
    again = solve_shards(on_disk.support, on_disk.queries, out, settings=settings)
    assert not again.was_finished
    assert {**json.loads((out / "run.json").read_text()), "seconds_per_step": 0} == {
        **json.loads(facts), "seconds_per_step": 0,
    }  # fmt: skip


def test_progress_counts_iterations_and_rows(on_disk, tmp_path):
    seen = []
    solve_shards(
        on_disk.support, on_disk.queries, tmp_path / "out", settings={"n_steps": 3},
        progress=lambda *state: seen.append(state),
    )  # fmt: skip
    last = {phase: (done, total) for phase, done, total in seen}
    assert last["solving"] == (3, 3)
    assert last["labelling"] == (2400, 2400)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", ["x.npy", "x.safetensors"])
def test_shards_are_not_read_into_memory(tmp_path, name):
    rows = torch.ones(200_000, 128, dtype=torch.float16)  # 51 MB
    if name.endswith(".npy"):
        np.save(tmp_path / name, rows.numpy())
    else:
        save_file({"labels": torch.arange(9), "features": rows}, tmp_path / name)
    before = own_memory()
    rows = open_shard(tmp_path / name).rows()
    parts = (rows[first : first + 4096] for first in range(0, 200_000, 4096))
    assert sum(float(part.float().sum()) for part in parts) == 200_000 * 128
    assert own_memory() - before < 20e6


def own_memory():
    """Bytes of this process without the pages of mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def test_a_class_without_queries_keeps_its_weights():
    """Without the support in the objective its sums are 0, and nothing may divide by zero."""
    solver = TimAdm(temperature=1000.0, cross_entropy_weight=0.0, marginal_entropy_weight=0.0)
    w = torch.eye(2, 4, dtype=torch.float64)
    support = Rows([Piece("", w.float(), torch.arange(2))], 10)
    queries = Rows([Piece("", w[:1].float().repeat(5, 1))], 10)
    adm = ShardedAdm(solver, support, queries, n_support=2, n_queries=5)
    torch.testing.assert_close(adm.step(w), w)
