"""TIM-auto over shards whitens features where the base classes are known, as in memory."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from infoshot import (
    DataError,
    FeatureTable,
    InvalidArgumentError,
    TaskBatch,
    TimAuto,
    read_features,
    solve,
    write_features,
)
from infoshot.core.types import BaseStatistics
from infoshot.features import prepare
from infoshot.features.normalize import Whitening
from infoshot.shards import solve_shards
from infoshot.solvers import METHODS
from infoshot.solvers.sharded import passes
from infoshot.solvers.sharded.rows import Piece, Rows, prepare_rows, row_scales
from tests.shards.made_shards import DIM, N_CLASSES, make_shards
from tests.shards.test_parquet_shards import read_all, to_parquet
from tests.shards.test_shard_ranks import start_ranks, wait_for
from tests.shards.test_solve_shards import check_same, read_labels

STEPS = {"n_steps": 5}


def base_statistics(seed=5):
    """Statistics of made-up base classes: a mean, and eight directions of unequal scatter."""
    generator = torch.Generator().manual_seed(seed)
    directions, _ = torch.linalg.qr(torch.randn(DIM, 8, generator=generator))
    deviations = torch.linspace(4, 1, 8).unsqueeze(1)
    return BaseStatistics(torch.rand(DIM, generator=generator), deviations * directions.mT)


def add_base(on_disk, base):
    table = read_features(on_disk.support)
    table = dataclasses.replace(table, base_mean=base.mean, base_scatter=base.scatter)
    write_features(on_disk.support, table)


@pytest.fixture(params=["float16", "float32"])
def on_disk(request, tmp_path):
    made = make_shards(tmp_path, half=request.param == "float16")
    add_base(made, base_statistics())
    return made


def whiten_by_numpy(z, base):
    """The formula of docs/tim-auto.md with a full matrix, float64."""
    scatter = base.scatter.double().numpy()
    variances, directions = np.linalg.eigh(np.eye(DIM) + scatter.T @ scatter / 2)
    transform = directions @ np.diag(variances**-0.5) @ directions.T
    moved = (z.double().numpy() - base.mean.double().numpy()) @ transform
    return torch.from_numpy(0.8 * moved / np.linalg.norm(moved, axis=1, keepdims=True))


def test_whitened_shards_equal_whitening_in_memory(on_disk, tmp_path, monkeypatch):
    """With all queries in the trial solves, it is the same solve without the others."""
    monkeypatch.setattr("infoshot.solvers.tim_auto._MOST_TRIAL_QUERIES", 2400)
    monkeypatch.setattr("infoshot.shards.sample_check._LEAST", 2400)
    z_sup, z_qry = (whiten_by_numpy(z, base_statistics()) for z in (on_disk.z_sup, on_disk.z_qry))
    task = TaskBatch(z_sup[None], on_disk.y_sup[None], z_qry[None], N_CLASSES)
    expected = solve(TimAuto(smoothing=0), task)
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", method="tim-auto")
    temperature = float(expected.temperatures[0])
    log_p = TimAuto(temperature=temperature).classify(task.z_qry, expected.prototypes)
    check_same(tmp_path / "out", log_p[0].exp(), 1e-4)


def test_two_processes_equal_one(on_disk, tmp_path):
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "one", method="tim-auto")
    codes, output = wait_for(start_ranks(2, on_disk, tmp_path / "two", "--method", "tim-auto"))
    assert codes == [0, 0], output
    one, two = read_labels(tmp_path / "one"), read_labels(tmp_path / "two")
    assert torch.equal(one["labels"], two["labels"])
    torch.testing.assert_close(one["confidence"], two["confidence"], atol=1e-5, rtol=0)


def test_parquet_gives_the_same_bytes(tmp_path):
    on_disk = make_shards(tmp_path)
    add_base(on_disk, base_statistics())
    parquet, _ = to_parquet(on_disk, tmp_path / "parquet", ("pyarrow, float16",))
    for queries, out in ((on_disk.queries, "plain"), (parquet, "parquet_out")):
        solve_shards(on_disk.support, queries, tmp_path / out, settings=STEPS, method="tim-auto")
    expected, found = read_labels(tmp_path / "plain"), read_all(tmp_path / "parquet_out")
    assert np.array_equal(found["confidence"], expected["confidence"])


def test_real_features_in_shards_equal_those_in_memory(embedded, tmp_path):
    """512 float16 features of ResNet-18, whose base statistics come with the package."""
    labels = torch.where(embedded.labels < 5, embedded.labels, -1)
    support = torch.cat([(labels == k).nonzero()[:5].flatten() for k in range(5)])
    queries = (labels >= 0).nonzero().flatten()
    table = dataclasses.replace(
        embedded, features=embedded.features[support], labels=labels[support], class_names=()
    )
    write_features(tmp_path / "support.safetensors", table)
    rows = embedded.features[queries].half()
    (tmp_path / "shards").mkdir()
    np.save(tmp_path / "shards" / "a.npy", rows[:2000].numpy())
    save_file({"features": rows[2000:].contiguous()}, tmp_path / "shards" / "b.safetensors")
    solve_shards(
        tmp_path / "support.safetensors", tmp_path / "shards", tmp_path / "out",
        method="tim-auto", settings={"n_steps": 60},
    )  # fmt: skip
    every = dataclasses.replace(table, features=rows, labels=labels[queries])
    z_sup, z_qry = (prepare(each, "whitened").double() for each in (table, every))
    task = TaskBatch(z_sup[None], table.labels[None], z_qry[None], 5)
    expected = solve(TimAuto(smoothing=0), task).prototypes
    weights = load_file(tmp_path / "out" / "state.safetensors")["weights"]
    torch.testing.assert_close(weights, expected[0], atol=1e-3, rtol=0)
    best = TimAuto().classify(task.z_qry, expected)[0].argmax(-1)
    parts = [load_file(tmp_path / "out" / "labels" / f"{name}.safetensors") for name in "ab"]
    assert (torch.cat([part["labels"] for part in parts]) == best).float().mean() > 0.999


def test_the_preparation_follows_method_and_support(tmp_path):
    on_disk = make_shards(tmp_path)
    plain = on_disk.support.with_name("plain.safetensors")
    plain.write_bytes(on_disk.support.read_bytes())
    add_base(on_disk, base_statistics())
    for support, method, expected in (
        (plain, "tim-auto", "l2"),
        (on_disk.support, "tim-adm", "l2"),
        (on_disk.support, "tim-auto", "whitened by "),
    ):
        out = tmp_path / f"{support.stem} {method}"
        solve_shards(support, on_disk.queries, out, settings=STEPS, method=method)
        facts = json.loads((out / "run.json").read_text())
        assert facts["preparation"].startswith(expected)


def test_the_published_method_does_not_whiten(on_disk, tmp_path):
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "known", settings=STEPS)
    table = read_features(on_disk.support)
    write_features(on_disk.support, FeatureTable(table.features, table.labels))
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "unknown", settings=STEPS)
    known, unknown = read_labels(tmp_path / "known"), read_labels(tmp_path / "unknown")
    assert torch.equal(known["confidence"], unknown["confidence"])


def test_other_preparations_are_refused(tmp_path):
    on_disk = make_shards(tmp_path)
    method = dataclasses.replace(METHODS["tim-adm"], name="mine", preparation="centred-l2")
    with pytest.raises(
        InvalidArgumentError, match=r"one of the preparations l2, whitened .* 'cent"
    ):
        solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", method=method)


def interrupt(phase, done, total):
    if phase == "solving" and done == 3:
        raise KeyboardInterrupt


def test_an_interrupted_solve_resumes(on_disk, tmp_path):
    how = {"method": "tim-auto", "settings": {"n_steps": 12}}
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "whole", **how)
    with pytest.raises(KeyboardInterrupt):
        solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", progress=interrupt, **how)
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", **how)
    whole, resumed = read_labels(tmp_path / "whole"), read_labels(tmp_path / "out")
    assert torch.equal(whole["confidence"], resumed["confidence"])


@pytest.mark.parametrize("other", [None, base_statistics(6)])
def test_a_solve_does_not_resume_with_another_preparation(tmp_path, monkeypatch, other):
    """The statistics of a network come with the package, whose versions may differ."""
    on_disk, known = make_shards(tmp_path), {"network": base_statistics()}
    monkeypatch.setattr("infoshot.features.normalize.find_statistics", known.get)
    table = read_features(on_disk.support)
    table = dataclasses.replace(table, provenance={"weights_sha256": "network"})
    write_features(on_disk.support, table)
    how = {"method": "tim-auto", "settings": {"n_steps": 12}}
    with pytest.raises(KeyboardInterrupt):
        solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", progress=interrupt, **how)
    known["network"] = other
    with pytest.raises(DataError, match=r"another solve \(its features were prepared differently"):
        solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", **how)
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "out", force=True, **how)


def test_shards_on_another_scale_than_the_support_are_refused(on_disk, tmp_path):
    """Unit vectors lie on one side of the base mean of features as the encoder gives them."""
    for path in on_disk.queries.iterdir():
        path.unlink()
    unit = torch.nn.functional.normalize(on_disk.z_qry, dim=1)
    np.save(on_disk.queries / "unit.npy", unit.numpy() / 2)
    solve_shards(on_disk.support, on_disk.queries, tmp_path / "adm", settings=STEPS)
    with pytest.raises(DataError, match=r"unit\.npy .* median length of 0\.5, those of the supp"):
        solve_shards(
            on_disk.support, on_disk.queries, tmp_path / "auto", settings=STEPS, method="tim-auto"
        )


@pytest.fixture
def whitening():
    return Whitening.of(base_statistics())


def test_passes_over_whitened_rows_are_those_over_prepared_rows(whitening):
    """Also where rows are far from zero, compared with their differences."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(300, DIM, generator=generator) + 10 * whitening.mean.float()
    w = torch.randn(5, DIM, generator=generator, dtype=torch.float64) / 5
    scales = row_scales(z, "", range(300), whitening)
    prepared = prepare_rows(z.double(), scales.double(), whitening).float()
    torch.testing.assert_close(prepared.norm(dim=1), torch.full((300,), 0.8))
    one = torch.ones_like(scales)
    plain = passes.Classifier.of(w, 15.0, "cpu")
    folded = passes.Classifier.of(w, 15.0, "cpu", whitening=whitening)
    shift = torch.randn(5, generator=generator)
    torch.testing.assert_close(
        passes.class_sums(z, scales, folded, 1.1), passes.class_sums(prepared, one, plain, 1.1),
        atol=0, rtol=1e-5,
    )  # fmt: skip
    expected = passes.query_moments(prepared, one, plain, 1.1, shift)
    found = passes.query_moments(z, scales, folded, 1.1, shift)
    found[:, :-2] = whitening.shorten(found[:, :-2])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_rows_without_a_direction_are_named(whitening):
    z = torch.rand(4, DIM)
    z[2] = whitening.mean
    rows = Rows([Piece("a.npy", torch.rand(3, DIM)), Piece("b.npy", z)], 2, whitening=whitening)
    with pytest.raises(DataError, match=r"^b\.npy: row 2 is the mean of the base classes, which"):
        rows.with_scales()
    z[2, 0] = torch.nan
    with pytest.raises(DataError, match=r"^b\.npy: row 2 has values that are not finite"):
        rows.with_scales()
    z[2] = 0  # a direction like any other, since the mean is not zero
    (_, scales) = rows.with_scales().pieces
    assert scales.scales.shape == (4, 1)
