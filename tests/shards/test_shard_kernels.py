"""The kernels between the products compute what PyTorch computes; see ``test_kernels.py``."""

import pytest
import torch

from infoshot.solvers.sharded import passes
from tests.solvers.kernel_device import kernel_device

DEVICE = kernel_device()
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


@pytest.mark.parametrize(("n_rows", "n_classes"), [(1, 2), (77, 5), (300, 100), (64, 1000)])
def test_kernels_equal_the_passes(n_rows, n_classes, monkeypatch):
    from infoshot.solvers.sharded import pass_kernels as kernels

    monkeypatch.setattr(kernels, "_PROGRAMS", 5)
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n_rows, 16, generator=generator)
    w = torch.nn.functional.normalize(
        torch.randn(n_classes, 16, generator=generator, dtype=torch.float64), dim=1
    )
    shift = 3 * torch.randn(n_classes, generator=generator)
    inverse = torch.linalg.vector_norm(z, dim=1, keepdim=True).reciprocal()
    classifier = passes.Classifier.of(w, 15.0, "cpu")
    sums = passes.class_sums(z * inverse, classifier, 1.1)
    moments = passes.query_moments(z * inverse, classifier, 1.1, shift)

    products = (z @ classifier.weights.T).to(DEVICE)
    given = (products, inverse.to(DEVICE), classifier.bias.to(DEVICE), 1.1)
    torch.testing.assert_close(kernels.power_sums(*given).cpu(), sums, atol=1e-5, rtol=1e-4)
    moved, totals = kernels.differences(*given, shift.to(DEVICE))
    assert moved.dtype == torch.float16
    torch.testing.assert_close(totals.cpu(), moments[:, -2:], atol=1e-5, rtol=1e-4)
    product = (moved.cpu().float().T @ z).double() / kernels.SCALE
    torch.testing.assert_close(product, moments[:, :-2], atol=2e-3, rtol=2e-3)
