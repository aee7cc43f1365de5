"""The kernels between the products compute what PyTorch computes; see ``test_kernels.py``."""

import pytest
import torch

from infoshot.core.types import BaseStatistics
from infoshot.features.normalize import Whitening
from infoshot.solvers.sharded import passes
from infoshot.solvers.sharded.row_preparation import RowPreparation
from tests.solvers.kernel_device import kernel_device

DEVICE = kernel_device()
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize(("n_rows", "n_classes"), [(1, 2), (77, 5), (300, 100), (64, 1000)])
def test_kernels_equal_the_passes(n_rows, n_classes, whitened, monkeypatch):
    from infoshot.solvers.sharded import pass_kernels as kernels

    monkeypatch.setattr(kernels, "_PROGRAMS", 5)
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n_rows, 16, generator=generator)
    w = torch.nn.functional.normalize(
        torch.randn(n_classes, 16, generator=generator, dtype=torch.float64), dim=1
    )
    shift = 3 * torch.randn(n_classes, generator=generator)
    base = BaseStatistics(z[0] + 0.5, torch.randn(4, 16, generator=generator))
    whitening = Whitening.of(base) if whitened else None
    scales = RowPreparation(whitening).measure(z, "", range(n_rows)).scales
    classifier = passes.Classifier.of(w, 15.0, "cpu", whitening=whitening)
    sums = passes.class_sums(z, scales, classifier, 1.1)
    moments = passes.query_moments(z, scales, classifier, 1.1, shift)

    products = (z @ classifier.weights.T).to(DEVICE)
    on_device = passes.Classifier.of(w, 15.0, DEVICE, whitening=whitening)
    given = (products, scales.to(DEVICE), on_device, 1.1)
    torch.testing.assert_close(kernels.power_sums(*given).cpu(), sums, atol=1e-5, rtol=1e-4)
    moved, totals = kernels.differences(*given, shift.to(DEVICE))
    assert moved.dtype == torch.float16
    torch.testing.assert_close(totals.cpu(), moments[:, -2:], atol=1e-5, rtol=1e-4)
    product = classifier.sum_centred(moved.cpu().float() / kernels.SCALE, z).double()
    torch.testing.assert_close(product, moments[:, :-2], atol=2e-3, rtol=2e-3)
