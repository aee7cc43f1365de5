import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infoshot.solvers.objective import (
    adm_loss,
    class_means,
    conditional_entropy,
    log_posterior,
    marginal_entropy,
    support_cross_entropy,
    tim_loss,
    weighted_mutual_information,
)
from tests.reference import tim_numpy as paper

WEIGHTS = {"lam": 0.3, "beta": 0.7, "alpha": 0.2}


def _random_task(seed=0, n_sup=6, n_qry=9, n_way=3, dim=5):
    rng = np.random.default_rng(seed)
    labels = np.resize(np.arange(n_way), n_sup)
    return (
        rng.normal(size=(n_sup, dim)),
        labels,
        rng.normal(size=(n_qry, dim)),
        rng.normal(size=(n_way, dim)),
    )


def _torch(*arrays):
    return [torch.from_numpy(np.asarray(array))[None] for array in arrays]


@pytest.fixture(params=[0, 1, 2])
def terms(request):
    """The same posteriors as arrays of the reference and as our tensors."""
    z_s, labels, z_q, w = _random_task(request.param)
    y = paper.one_hot(labels, 3)
    p_s, p_q = paper.posterior(z_s, w, 2.0), paper.posterior(z_q, w, 2.0)
    t_s, t_labels, t_q, t_w = _torch(z_s, labels, z_q, w)
    ours = (log_posterior(t_s, t_w, 2.0), t_labels, log_posterior(t_q, t_w, 2.0))
    return (p_s, y, p_q), ours


def test_posterior_equals_the_paper(terms):
    (p_s, _, p_q), (log_p_s, _, log_p_q) = terms
    np.testing.assert_allclose(log_p_s[0].exp(), p_s, atol=1e-13)
    np.testing.assert_allclose(log_p_q[0].exp(), p_q, atol=1e-13)


def test_prototypes_equal_the_paper_with_unequal_shots():
    z_s, _, _, _ = _random_task()
    labels = np.array([2, 0, 2, 1, 2, 0])
    ours = class_means(*_torch(z_s, labels), n_way=3)
    np.testing.assert_allclose(ours[0], paper.prototypes(z_s, paper.one_hot(labels, 3)), atol=1e-14)


def test_each_term_equals_the_paper(terms):
    (p_s, y, p_q), (log_p_s, labels, log_p_q) = terms
    assert support_cross_entropy(log_p_s, labels).item() == pytest.approx(
        paper.cross_entropy(p_s, y), abs=1e-12
    )
    assert marginal_entropy(log_p_q).item() == pytest.approx(paper.marginal_entropy(p_q), abs=1e-12)
    assert conditional_entropy(log_p_q).item() == pytest.approx(
        paper.conditional_entropy(p_q), abs=1e-12
    )


def test_losses_equal_the_paper(terms):
    (p_s, y, p_q), ours = terms
    assert tim_loss(*ours, **WEIGHTS).item() == pytest.approx(
        paper.tim_loss(p_s, y, p_q, **WEIGHTS), abs=1e-12
    )
    prior = np.array([0.5, 0.3, 0.2])
    log_prior = torch.from_numpy(prior).log()
    assert tim_loss(*ours, **WEIGHTS, log_prior=log_prior).item() == pytest.approx(
        paper.tim_loss(p_s, y, p_q, **WEIGHTS, prior=prior), abs=1e-12
    )
    q = paper.q_step(p_q, beta=1.0, alpha=0.1)
    cost = -WEIGHTS["beta"] * (q.mean(0) * np.log(prior)).sum()
    log_q = torch.from_numpy(q)[None].log()
    with_prior = adm_loss(*ours, log_q, **WEIGHTS, log_prior=log_prior)
    assert with_prior.item() == pytest.approx(
        paper.adm_loss(p_s, y, p_q, q, **WEIGHTS) + cost, abs=1e-12
    )
    log_q = torch.from_numpy(q)[None].log()
    assert adm_loss(*ours, log_q, **WEIGHTS).item() == pytest.approx(
        paper.adm_loss(p_s, y, p_q, q, **WEIGHTS), abs=1e-12
    )


def test_adm_loss_is_tim_loss_where_q_is_p(terms):
    _, (log_p_s, labels, log_p_q) = terms
    adm = adm_loss(log_p_s, labels, log_p_q, log_p_q, **WEIGHTS)
    torch.testing.assert_close(adm, tim_loss(log_p_s, labels, log_p_q, **WEIGHTS))


def test_uniform_prior_adds_a_constant(terms):
    _, ours = terms
    uniform = torch.full((3,), 1 / 3, dtype=torch.float64).log()
    with_prior = tim_loss(*ours, **WEIGHTS, log_prior=uniform)
    difference = with_prior - tim_loss(*ours, **WEIGHTS)
    assert difference.item() == pytest.approx(WEIGHTS["beta"] * math.log(3), abs=1e-12)


def test_impossible_classes_do_not_make_nan():
    log_p = torch.tensor([[[0.0, -torch.inf], [0.0, -torch.inf]]])
    assert marginal_entropy(log_p).item() == 0
    assert conditional_entropy(log_p).item() == 0


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.floats(0.01, 100))
def test_entropies_respect_their_bounds(seed, n_way, scale):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(2, 7, n_way, generator=generator, dtype=torch.float64)
    log_p = torch.log_softmax(logits, -1)
    marginal, conditional = marginal_entropy(log_p), conditional_entropy(log_p)
    assert (marginal <= math.log(n_way) + 1e-9).all()
    assert (conditional >= -1e-9).all()
    # Mutual information is never negative: entropy is concave.
    assert (weighted_mutual_information(log_p, 1.0, 1.0) >= -1e-9).all()
