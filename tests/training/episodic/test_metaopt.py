"""MetaOpt against the paper in NumPy, and trained together with an embedding."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from infoshot import InvalidArgumentError
from infoshot.solvers.objective import class_means
from infoshot.training.episodic.metaopt import MetaOpt
from tests.reference import systems_metaopt_numpy as reference
from tests.training.episodic.embedded_head import EmbeddedHead
from tests.training.episodic.head_checks import (
    DIM,
    N_WAY,
    check_head,
    move_parameters,
    small_episodes,
)
from tests.training.episodic.synthetic_episodes import DIM as SYNTHETIC_DIM
from tests.training.episodic.synthetic_episodes import accuracy, train

CLASSIFIERS = ("svm", "ridge")


def _expected_weights(classifier, z, y):
    if classifier == "ridge":
        return reference.ridge(z, y, N_WAY, 50.0)
    return reference.svm(z, y, N_WAY, 0.1)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_metaopt_agrees_with_the_paper(classifier):
    head, episodes = move_parameters(MetaOpt(DIM, 64, classifier=classifier)), small_episodes()
    with torch.no_grad():
        loss, log_p = head.loss(episodes)
    parts = (episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.y_qry)
    losses = []
    for row, *task in zip(log_p, *(part.numpy() for part in parts), strict=True):
        w = _expected_weights(classifier, *task[:2])
        expected = reference.log_probabilities(task[2], w, head.scale.item())
        np.testing.assert_allclose(row.numpy(), expected, rtol=0, atol=1e-10)
        losses.append(reference.smoothed_cross_entropy(expected, task[3], 0.1))
    assert float(loss) == pytest.approx(np.mean(losses), abs=1e-10)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_head_holds_what_every_head_holds(classifier):
    check_head(move_parameters(MetaOpt(DIM, 64, classifier=classifier)))


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_other_numbers_of_ways_than_in_training_work(classifier):
    episodes = small_episodes()
    y_sup = episodes.y_sup.clamp(max=1)
    head = MetaOpt(DIM, 64, classifier=classifier)
    assert head.log_posterior(episodes.z_sup, y_sup, episodes.z_qry, 2).shape[2] == 2


def test_strong_regularisation_leaves_the_sums_of_the_classes():
    """For a large lambda the weights of ridge regression are sums of the support over lambda."""
    head, episodes = MetaOpt(DIM, 64, classifier="ridge", regularization=1e9), small_episodes()
    counts = torch.stack([(episodes.y_sup == k).sum(1) for k in range(N_WAY)], dim=1)
    means = class_means(episodes.z_sup, episodes.y_sup, N_WAY)
    w = head.prototypes(episodes.z_sup, episodes.y_sup, N_WAY)
    assert_close(w * 1e9, means * counts.unsqueeze(-1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_training_learns_an_embedding_through_the_solution(classifier):
    torch.manual_seed(0)
    head = EmbeddedHead(MetaOpt(SYNTHETIC_DIM, 64, classifier=classifier))
    before = accuracy(head)
    train(head, 25, 1e-2, n_tasks=8, n_shot=2)
    assert accuracy(head) > before + 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classifier": "lda"}, "classifier must be one of 'svm', 'ridge'; got 'lda'."),
        ({"cost": 0}, "cost must be a finite number above 0; got 0."),
        ({"regularization": 0}, "regularization must be a finite number above 0; got 0."),
        ({"label_smoothing": 0.6}, "label_smoothing must be between 0 and 0.5; got 0.6."),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        MetaOpt(DIM, 64, **settings)
