"""Shards solved on a GPU, in float16 and in float32, against the plain solve in float64."""

import pytest
import torch

from infoshot import TimAdm, solve
from infoshot.shards import solve_shards
from tests.shards.made_shards import make_shards
from tests.shards.test_solve_shards import check_same, read_labels
from tests.shards.test_whitened_shards import add_base, base_statistics

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("half", "n_steps"), [(True, 10), (False, 10), (True, 150), (False, 150)])
@pytest.mark.parametrize("prior", [None, [1, 2, 3, 1, 1, 1, 1]])
def test_sharded_equals_unsharded(tmp_path, half, n_steps, prior):
    on_disk = make_shards(tmp_path, half=half)
    settings = {"n_steps": n_steps, "class_prior": prior}
    expected = solve(TimAdm(**settings), on_disk.task()).probabilities[0]
    solve_shards(
        on_disk.support, on_disk.queries, tmp_path / "out", settings=settings, device="cuda"
    )
    check_same(tmp_path / "out", expected, 2e-3 if half else 1e-4)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("share", [0.6, 0.0])  # of the memory that shards may fill
def test_whitened_shards_equal_those_on_a_cpu(tmp_path, monkeypatch, half, share):
    monkeypatch.setattr("infoshot.shards.shard_queries._SHARE_OF_GPU", share)
    on_disk = make_shards(tmp_path, half=half)
    add_base(on_disk, base_statistics())
    for device in ("cpu", "cuda"):
        solve_shards(
            on_disk.support, on_disk.queries, tmp_path / device, method="tim-auto", device=device
        )
    expected, found = read_labels(tmp_path / "cpu"), read_labels(tmp_path / "cuda")
    clear = expected["margin"] > 5e-3
    assert torch.equal(found["labels"][clear], expected["labels"][clear])
    tolerance = 2e-3 if half else 1e-4
    torch.testing.assert_close(found["confidence"], expected["confidence"], atol=tolerance, rtol=0)
