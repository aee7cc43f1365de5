"""Shards solved on a GPU, in float16 and in float32, against the plain solve in float64."""

import pytest

from infoshot import TimAdm, solve
from infoshot.shards import solve_shards
from tests.shards.made_shards import make_shards
from tests.shards.test_solve_shards import check_same

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
