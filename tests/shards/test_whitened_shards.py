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
from infoshot.distributed import Ranks
from infoshot.features import prepare
from infoshot.features.normalize import Whitening
from infoshot.shards import solve_shards
from infoshot.shards.shard_queries import find_query_centres, own_queries
from infoshot.shards.shard_task import read_task
from infoshot.solvers import METHODS
from infoshot.solvers.sharded import passes
from infoshot.solvers.sharded.centres import find_centres
from infoshot.solvers.sharded.row_preparation import RowPreparation
from infoshot.solvers.sharded.rows import Piece, Rows
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


def average_by_numpy(z, centres, share=0.3, n_nearest=8):
    """The formulas of neighbours.py, with centres instead of samples."""
    z, centres = z.numpy(), centres.double().numpy()
    distances = ((z[:, None] - centres) ** 2).sum(-1)
    near = np.argsort(distances, axis=1)[:, :n_nearest]
    weights = np.exp(-20 / 2 * np.take_along_axis(distances, near, 1))
    weights /= weights.sum(1, keepdims=True)
    mixed = (1 - share) * z + share * np.einsum("ij,ijk->ik", weights, centres[near])
    lengths = [np.linalg.norm(x, axis=1, keepdims=True) for x in (z, mixed)]
    return torch.from_numpy(mixed * lengths[0] / lengths[1])


def read_state(out):
    return load_file(out / "state.safetensors")


@pytest.mark.parametrize("smoothing", [0.3, 0.0])
def test_whitened_shards_equal_whitening_in_memory(on_disk, tmp_path, monkeypatch, smoothing):
    """With all queries in the trial solves, it is the same solve without the others."""
    monkeypatch.setattr("infoshot.solvers.tim_auto._MOST_TRIAL_QUERIES", 2400)
    monkeypatch.setattr("infoshot.shards.sample_check._LEAST", 2400)
    solve_shards(
        on_disk.support, on_disk.queries, tmp_path / "out", method="tim-auto",
        settings={"smoothing": smoothing},
    )  # fmt: skip
    z_sup, whitened = (
        whiten_by_numpy(z, base_statistics()) for z in (on_disk.z_sup, on_disk.z_qry)
    )
    centres = read_state(tmp_path / "out")["centres"]
    assert len(centres) == (2400 // 16 if smoothing else 0)
    z_qry = average_by_numpy(whitened, centres) if smoothing else whitened
    solver, y_sup = TimAuto(smoothing=0), on_disk.y_sup[None]
    task, plain = (TaskBatch(z_sup[None], y_sup, z[None], N_CLASSES) for z in (z_qry, whitened))
    w = solve(solver, task).prototypes
    # How sharp probabilities are follows from queries that are not averaged, as in memory, and
    # from the weight that is chosen with those that are, see pooling.py.
    beta, other_beta = (float(solver.init(each).beta) for each in (task, plain))
    temperature = float(solve(solver, plain).temperatures) * (beta / other_beta) ** 0.08
    probabilities = TimAuto(temperature=temperature).classify(task.z_qry, w)[0].exp()
    check_same(tmp_path / "out", probabilities, 2e-4)


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


def test_real_features_get_nearly_the_labels_of_the_solve_in_memory(embedded, tmp_path):
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
    every = dataclasses.replace(table, features=rows, labels=labels[queries])
    z_sup, z_qry = (prepare(each, "whitened").double() for each in (table, every))
    task = TaskBatch(z_sup[None], table.labels[None], z_qry[None], 5)
    expected = solve(METHODS["tim-auto"].solver, task).probabilities[0].argmax(-1)
    agreement = {}
    for smoothing in (0.3, 0.0):
        out = tmp_path / f"out {smoothing}"
        solve_shards(
            tmp_path / "support.safetensors", tmp_path / "shards", out, method="tim-auto",
            settings={"smoothing": smoothing},
        )  # fmt: skip
        parts = [load_file(out / "labels" / f"{name}.safetensors") for name in "ab"]
        same = torch.cat([part["labels"] for part in parts]) == expected
        agreement[smoothing] = float(same.float().mean())
    assert agreement[0.3] > max(0.94, agreement[0.0])


def test_centres_are_those_of_lloyds_algorithm(tmp_path, monkeypatch):
    """However rows are divided into files and chunks."""
    monkeypatch.setattr("infoshot.solvers.sharded.centres._STEPS", 4)
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(500, DIM, generator=generator)
    prepared = torch.nn.functional.normalize(z, dim=1).double().numpy()
    expected = prepared[:20].copy()
    expected[7] = 5  # far from all rows: it stays
    start = torch.from_numpy(expected).float()
    for _ in range(4):
        nearest = ((prepared[:, None] - expected) ** 2).sum(-1).argmin(1)
        for centre in set(nearest):
            expected[centre] = prepared[nearest == centre].mean(0)
    for sizes, chunk_size in (((500,), 500), ((1, 0, 299, 200), 33)):
        rows = Rows([Piece("", part) for part in z.split(sizes)], chunk_size)
        found = find_centres(rows, start, lambda sums: sums)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_queries_are_averaged_where_enough_of_them_are_whitened(tmp_path):
    """From 16 queries per centre and four centres per class on."""
    fewest = 16 * 4 * N_CLASSES
    for n, known, method, settings, expected in (
        (fewest, True, "tim-auto", {}, 4 * N_CLASSES),
        (fewest - 1, True, "tim-auto", {}, 0),
        (fewest, True, "tim-auto", {"smoothing": 0.0}, 0),
        (fewest, False, "tim-auto", {}, 0),
        (fewest, True, "tim-adm", {}, 0),
        (16 * 65 * N_CLASSES, True, "tim-auto", {}, 64 * N_CLASSES),
    ):
        folder = tmp_path / f"{n} {known} {method} {settings}"
        folder.mkdir()
        on_disk = make_shards(folder, sizes=(n // 2, n - n // 2))
        if known:
            add_base(on_disk, base_statistics())
        solve_shards(
            on_disk.support, on_disk.queries, folder / "out", method=method,
            settings={"n_steps": 1, **settings},
        )  # fmt: skip
        assert len(read_state(folder / "out")["centres"]) == expected
        assert json.loads((folder / "out" / "run.json").read_text())["centres"] == expected


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
    with pytest.raises(
        DataError, match=r"unit\.npy: the median length .* is 0\.5, that of the support"
    ):
        solve_shards(
            on_disk.support, on_disk.queries, tmp_path / "auto", settings=STEPS, method="tim-auto"
        )


@pytest.mark.parametrize("share", [0.6, 0.0])  # of the memory that rows may fill
def test_rows_that_a_gpu_holds_are_those_that_are_read(on_disk, monkeypatch, share):
    """On a device that is not called "cpu", which PyTorch takes for a CPU."""
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (2**30, 2**30))
    monkeypatch.setattr("infoshot.shards.shard_queries._SHARE_OF_GPU", share)
    method, found = METHODS["tim-auto"], []
    for device in ("cpu", "cpu:0"):
        task = read_task(on_disk.support, on_disk.queries, method, Ranks(device=device))
        rows = own_queries(task, task.preparation(find_query_centres(task)))
        found.append(torch.cat([z for _, z in rows.map(rows.preparation.apply)]))
        assert len(rows) == 2400
    held = isinstance(rows.pieces[0].rows, torch.Tensor)
    assert held == (share > 0)
    # Rows that are held keep the dtype of their file.
    half = held and rows.pieces[0].rows.dtype == torch.float16
    torch.testing.assert_close(*found, atol=1e-3 if half else 1e-5, rtol=0)


@pytest.fixture
def whitening():
    return Whitening.of(base_statistics())


def test_passes_over_whitened_rows_are_those_over_prepared_rows(whitening):
    """Also where rows are far from zero, compared with their differences."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(300, DIM, generator=generator) + 10 * whitening.mean.float()
    w = torch.randn(5, DIM, generator=generator, dtype=torch.float64) / 5
    preparation = RowPreparation(whitening)
    scales = preparation.measure(z, "", range(300)).scales
    prepared = preparation.apply(z, scales)
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
    rows = Rows([Piece("a.npy", torch.rand(3, DIM)), Piece("b.npy", z)], 2)
    rows = dataclasses.replace(rows, preparation=RowPreparation(whitening))
    with pytest.raises(DataError, match=r"^b\.npy: row 2 is the mean of the base classes, which"):
        rows.measure()
    z[2, 0] = torch.nan
    with pytest.raises(DataError, match=r"^b\.npy: row 2 has values that are not finite"):
        rows.measure()
    z[2] = 0  # a direction like any other, since the mean is not zero
    _, b = rows.measure().pieces
    assert b.measured.scales.shape == (4, 1)
