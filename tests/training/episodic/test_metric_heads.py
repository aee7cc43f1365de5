"""ProtoNet and MatchNet against NumPy versions written from their papers."""

import numpy as np
import pytest
import torch

from infoshot.training.episodic.head import Episodes
from infoshot.training.episodic.registry import make_head
from tests.reference.systems_metric_numpy import matchnet, protonet

# Unequal shots: two, one and three examples of three classes.
Y_SUP = torch.tensor([[0, 2, 1, 2, 0, 2], [2, 2, 0, 1, 0, 2]])
CASES = {
    "protonet": ("protonet", {}, protonet, 2.0),
    "sharp protonet": ("protonet", {"temperature": 9.0}, protonet, 9.0),
    "protonet per dimension": ("protonet", {"per_dimension": True}, protonet, 2.0 / 5),
    "matchnet": ("matchnet", {}, matchnet, 100.0),
    "soft matchnet": ("matchnet", {"temperature": 3.0}, matchnet, 3.0),
}


def _tasks(n_tasks=2, dim=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n_tasks, 13, dim, generator=generator, dtype=dtype)
    return z[:, :6], Y_SUP[:n_tasks], z[:, 6:]


@pytest.fixture(params=CASES)
def case(request):
    name, settings, reference, tau = CASES[request.param]
    return make_head(name, 5, 8, settings), reference, tau


def test_heads_agree_with_the_papers(case):
    head, reference, tau = case
    z_sup, y_sup, z_qry = _tasks()
    p = head.log_posterior(z_sup, y_sup, z_qry, 3).exp()
    for task in range(2):
        expected = reference(z_sup[task].numpy(), y_sup[task].numpy(), z_qry[task].numpy(), 3, tau)
        np.testing.assert_allclose(p[task].numpy(), expected, atol=1e-10)


def test_loss_is_the_mean_cross_entropy_of_the_queries(case):
    head, reference, tau = case
    z_sup, y_sup, z_qry = (x[:1] for x in _tasks())
    y_qry = torch.tensor([[0, 1, 2, 2, 1, 0, 0]])
    episodes = Episodes(z_sup, y_sup, z_qry, y_qry, torch.tensor([[4, 5, 6]]))
    loss, log_p = head.loss(episodes)
    expected = reference(z_sup[0].numpy(), y_sup[0].numpy(), z_qry[0].numpy(), 3, tau)
    right = [expected[i, label] for i, label in enumerate(y_qry[0])]
    assert loss.item() == pytest.approx(-np.log(right).mean(), rel=1e-9)
    np.testing.assert_allclose(log_p[0].exp().numpy(), expected, atol=1e-10)


def test_order_of_queries_support_and_classes_does_not_matter(case):
    head, *_ = case
    z_sup, y_sup, z_qry = _tasks()
    log_p = head.log_posterior(z_sup, y_sup, z_qry, 3)
    swapped = head.log_posterior(z_sup, y_sup, z_qry.flip(1), 3)
    torch.testing.assert_close(swapped, log_p.flip(1))
    torch.testing.assert_close(head.log_posterior(z_sup.flip(1), y_sup.flip(1), z_qry, 3), log_p)
    names = torch.tensor([2, 0, 1])
    torch.testing.assert_close(head.log_posterior(z_sup, names[y_sup], z_qry, 3)[..., names], log_p)


def test_gradients_are_right(case):
    head, *_ = case
    z_sup, y_sup, z_qry = _tasks(1)

    def answer(z_sup, z_qry):
        return head.log_posterior(z_sup, y_sup, z_qry, 3)

    assert torch.autograd.gradcheck(
        answer, (0.3 * z_sup.requires_grad_(), 0.3 * z_qry.requires_grad_()), atol=1e-4
    )


def test_nearest_example_decides_alone_in_the_limit():
    z_sup, y_sup, z_qry = _tasks()
    head = make_head("matchnet", 5, 8, {"temperature": 1e6})
    cosines = torch.cosine_similarity(z_qry.unsqueeze(2), z_sup.unsqueeze(1), dim=-1)
    nearest = y_sup.gather(1, cosines.argmax(-1))
    p = head.log_posterior(z_sup, y_sup, z_qry, 3).exp()
    torch.testing.assert_close(p, torch.nn.functional.one_hot(nearest, 3).double())


def test_half_way_between_two_prototypes_both_are_as_likely():
    head = make_head("protonet", 2, 8)
    z_sup = torch.tensor([[[0.0, 0.0], [2.0, 0.0], [2.0, 2.0]]])
    p = head.log_posterior(z_sup, torch.tensor([[0, 1, 1]]), torch.tensor([[[1.0, 0.5]]]), 2).exp()
    torch.testing.assert_close(p, torch.tensor([[[0.5, 0.5]]]))
