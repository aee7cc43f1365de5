"""Sharded equals unsharded: from files, whatever the shards look like."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from infoshot import TimAdm, TimAuto, solve
from infoshot.shards import Watcher, solve_shards
from infoshot.solvers import METHODS
from infoshot.solvers.sharded.rows import Piece, Rows
from infoshot.solvers.sharded.sharded_adm import ShardedAdm
from tests.labelling.commands import run
from tests.shards.made_shards import N_CLASSES, SIZES, make_shards

CLEAR = 1e-3


@pytest.fixture(params=["float16", "float32"])
def on_disk(request, tmp_path):
    return make_shards(tmp_path, half=request.param == "float16")


def with_steps(name, n_steps, **settings):
    return METHODS[name].with_settings({"n_steps": n_steps, **settings})


def labelled(out):
    """Rows of all shards in their order."""
    parts = [load_file(out / "labels" / f"part{number}.safetensors") for number in range(5)]
    assert [len(part["labels"]) for part in parts] == list(SIZES)
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def check_same(out, probabilities, atol):
    """Labels where the margin is clear, confidences and margins everywhere."""
    found = labelled(out)
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
    method = with_steps("tim-adm", n_steps, class_prior=prior)
    summary = solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", method=method)
    check_same(tmp_path / "out", expected, 1e-4)
    assert (summary.n_queries, summary.n_steps) == (sum(SIZES), n_steps)
    counts = labelled(tmp_path / "out")["labels"].long().bincount(minlength=N_CLASSES)
    assert list(summary.counts.values()) == counts.tolist()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_chunks_and_threads_do_not_matter(on_disk, tmp_path, monkeypatch, threads):
    monkeypatch.setattr("infoshot.shards.plan._FEWEST_ROWS", 37)
    monkeypatch.setattr("infoshot.shards.plan._NUMBERS", 1)
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    expected = solve(TimAdm(n_steps=10), on_disk.task()).probabilities[0]
    method = with_steps("tim-adm", 10)
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", method=method)
    check_same(tmp_path / "out", expected, 1e-4)


@pytest.mark.parametrize("shares", [None, [20, 1, 1, 1, 1, 1, 1]])
def test_tim_auto_decides_as_in_memory(tmp_path, monkeypatch, shares):
    """Without averages over neighbours, and with a sample of everything, it is the same solve."""
    monkeypatch.setattr("infoshot.solvers.tim_auto._MOST_TRIAL_QUERIES", 2400)
    monkeypatch.setattr("infoshot.shards.sample_check._LEAST", 2400)
    on_disk = make_shards(tmp_path, shares=shares)
    expected = solve(TimAuto(smoothing=0), on_disk.task())
    method = METHODS["tim-auto"].with_settings({"smoothing": 0})
    summary = solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", method=method)
    assert summary.note.split("; with")[0] == expected.notes[0].split("; with")[0]
    assert summary.note.split("chance. ")[1] == expected.notes[0].split("chance. ")[1]
    check_same(tmp_path / "out", expected.probabilities[0], 1e-4)


def test_skewed_queries_are_noticed(tmp_path):
    said = []
    on_disk = make_shards(tmp_path, shares=[20, 1, 1, 1, 1, 1, 1])
    watcher = Watcher(warn=said.append)
    method = with_steps("tim-adm", 2)
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "a", method=method, watcher=watcher)
    assert len(said) == 1
    assert "can do great harm" in said[0]
    told = with_steps("tim-adm", 2, class_prior=[20, 1, 1, 1, 1, 1, 1])
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "b", method=told, watcher=watcher)
    assert len(said) == 1


def test_tolerance_stops_and_says_so(on_disk, tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.shards.api._WATCHED", 2400)
    method = with_steps("tim-adm", 150, tolerance=0.01)
    summary = solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", method=method)
    assert summary.converged
    assert 2 < summary.n_steps < 150
    last, before, earlier = (
        solve(TimAdm(n_steps=summary.n_steps - back), on_disk.task()).probabilities
        for back in range(3)
    )
    assert (last - before).abs().max() < 0.01 < (before - earlier).abs().max()
    check_same(tmp_path / "out", last[0], 1e-4)


def test_command_labels_and_says_what_it_did(on_disk, tmp_path):
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
    out, method = tmp_path / "out", with_steps("tim-adm", 5)
    solve_shards(on_disk.support, on_disk.queries, out, method=method)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("part*")}
    facts = (out / "run.json").read_bytes()
    summary = solve_shards(str(on_disk.support), str(on_disk.queries), str(out), method=method)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("part*")} == before
    assert summary.was_finished
    assert (out / "run.json").read_bytes() == facts


def test_a_class_that_nothing_is_near_to_stays_where_it_is():
    """Without the support in the objective nothing holds it, and nothing may divide by zero."""
    solver = TimAdm(temperature=1000.0, cross_entropy_weight=0.0, marginal_entropy_weight=0.0)
    w = torch.eye(2, 4, dtype=torch.float64)
    support = Rows([Piece("", w.float(), torch.arange(2))], 10)
    queries = Rows([Piece("", w[:1].float().repeat(5, 1))], 10)
    adm = ShardedAdm(solver, support, queries, n_support=2, n_queries=5)
    torch.testing.assert_close(adm.step(w), w)
