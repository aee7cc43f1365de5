"""MTL's classifier against the paper in NumPy, and trained together with an embedding."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from infoshot import InvalidArgumentError
from infoshot.training.episodic.mtl import Mtl
from tests.reference import systems_mtl_numpy as reference
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

STEPS = {"n_steps": 2, "n_test_steps": 4, "learning_rate": 0.3}


def _head(**settings):
    torch.manual_seed(0)
    return move_parameters(Mtl(DIM, 64, n_way=N_WAY, **{**STEPS, **settings}))


@pytest.mark.parametrize("training", [True, False])
def test_mtl_agrees_with_the_paper(training):
    head, episodes = _head().train(training), small_episodes()
    parts = (episodes.z_sup, episodes.y_sup, episodes.z_qry)
    weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
    steps = {"n_steps": 2 if training else 4, "learning_rate": 0.3}
    with torch.no_grad():
        log_p = head.log_posterior(*parts, N_WAY)
    for row, *task in zip(log_p, *(part.numpy() for part in parts), strict=True):
        expected = reference.mtl(*task, weight, bias, **steps)
        np.testing.assert_allclose(row.numpy(), expected, rtol=0, atol=1e-12)


def test_head_holds_what_every_head_holds():
    check_head(_head(), relabels=False)


def test_relabelling_classes_and_initial_weights_alike_permutes_the_columns():
    head, episodes = _head(), small_episodes()
    parts = (episodes.z_sup, episodes.y_sup, episodes.z_qry)
    log_p = head.log_posterior(*parts, N_WAY)
    names = torch.tensor([2, 0, 1])
    with torch.no_grad():
        head.weight.copy_(head.weight[names.argsort()])
        head.bias.copy_(head.bias[names.argsort()])
    renamed = head.log_posterior(parts[0], names[parts[1]], parts[2], N_WAY)
    assert_close(renamed[..., names], log_p, rtol=0, atol=1e-12)


def test_gradients_of_initial_weights_pass_through_the_steps():
    head, episodes = _head(), small_episodes()
    found = torch.autograd.grad(head.loss(episodes)[0], (head.weight, head.bias))
    for parameter, gradient in zip((head.weight, head.bias), found, strict=True):
        for place in np.ndindex(*parameter.shape):
            with torch.no_grad():
                parameter[place] += 1e-6
                more = head.loss(episodes)[0]
                parameter[place] -= 2e-6
                slope = (more - head.loss(episodes)[0]) / 2e-6
                parameter[place] += 1e-6
            assert_close(gradient[place], slope, rtol=1e-5, atol=1e-8)


def test_small_steps_do_not_leave_the_initial_classifier():
    head, episodes = _head(learning_rate=1e-9), small_episodes()
    expected = (episodes.z_qry @ head.weight.mT + head.bias).log_softmax(-1)
    log_p = head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, N_WAY)
    assert_close(log_p, expected, rtol=0, atol=1e-6)


def test_training_learns_an_embedding_through_the_steps():
    torch.manual_seed(0)
    head = EmbeddedHead(Mtl(SYNTHETIC_DIM, 64, learning_rate=0.1))
    before = accuracy(head)
    train(head, 100, 1e-2)
    assert accuracy(head) > before + 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_way": 1}, "n_way must be a whole number of at least 2; got 1."),
        ({"n_steps": 0}, "n_steps must be a whole number of at least 1; got 0."),
        ({"n_test_steps": 0}, "n_test_steps must be a whole number of at least 1; got 0."),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0; got 0."),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Mtl(DIM, 64, **settings)


def test_another_number_of_ways_is_refused():
    episodes = small_episodes()
    message = "n_way must be 3 for this system, which has weights for 3 classes of a task; got 2."
    with pytest.raises(InvalidArgumentError, match=message):
        _head().prototypes(episodes.z_sup, episodes.y_sup, 2)
