"""Confident queries against loops in NumPy, with known cases, and around every kind of head."""

import numpy as np
import pytest
import torch

from infoshot import InvalidArgumentError
from infoshot.solvers.confident_queries import most_confident
from infoshot.solvers.objective import class_means
from infoshot.training.episodic.can import Can
from infoshot.training.episodic.gnn import Gnn
from infoshot.training.episodic.head import Head
from infoshot.training.episodic.matchnet import MatchNet
from infoshot.training.episodic.relatnet import RelatNet
from infoshot.training.episodic.with_confident_queries import ConfidentQueries
from tests.reference import systems_confident_queries_numpy as reference
from tests.training.episodic.head_checks import DIM, check_head, small_episodes
from tests.training.episodic.map_head import MapHead, map_episodes, randomise_norms
from tests.training.episodic.synthetic_episodes import synthetic_episodes


class NearestMean(Head):
    def log_posterior(self, z_sup, y_sup, z_qry, n_way):
        means = class_means(z_sup, y_sup, n_way)
        return torch.log_softmax(-torch.cdist(z_qry, means).square(), dim=-1)


class ImageHead(NearestMean):
    reads = "images"


def _classify(head, episodes):
    return head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.n_way)


@pytest.mark.parametrize(("n_rounds", "share"), [(2, 35 / 75), (3, 0.25), (1, 1.0)])
def test_rounds_agree_with_loops(n_rounds, share):
    episodes = small_episodes()
    head = ConfidentQueries(NearestMean(DIM, 8), n_rounds=n_rounds, share=share)
    log_p = _classify(head, episodes)
    assert not torch.allclose(log_p, _classify(NearestMean(DIM, 8), episodes))
    for task in range(len(log_p)):
        given = (x[task].numpy() for x in (episodes.z_sup, episodes.y_sup, episodes.z_qry))
        expected = reference.classify(reference.nearest_mean, *given, 3, n_rounds, share)
        np.testing.assert_allclose(log_p[task], expected, atol=1e-10)


def test_published_rounds_take_35_and_70_of_75_queries():
    sizes = []

    class Counting(NearestMean):
        def log_posterior(self, z_sup, y_sup, z_qry, n_way):
            sizes.append(z_sup.shape[1])
            return super().log_posterior(z_sup, y_sup, z_qry, n_way)

    _classify(ConfidentQueries(Counting(24, 8)), synthetic_episodes(1, seed=0, n_query=15))
    assert sizes == [5, 40, 75]


def test_the_most_confident_come_first_and_ties_by_position():
    p = torch.tensor([[[0.5, 0.5], [0.2, 0.8], [0.8, 0.2], [0.5, 0.5], [0.1, 0.9]]])
    chosen, labels = most_confident(p.log(), 4)
    assert chosen.tolist() == [[4, 1, 2, 0]]
    assert labels.tolist() == [[1, 1, 0, 0]]


def test_probabilities_that_round_to_one_still_have_an_order():
    log_p = torch.tensor([[0.0, 30.0, -5.0], [0.0, -10.0, 50.0], [40.0, 0.0, 0.0]]).log_softmax(-1)
    assert (log_p.exp().amax(-1) == 1).all()
    chosen, labels = most_confident(log_p.unsqueeze(0), 3)
    assert chosen.tolist() == [[1, 2, 0]]
    assert labels.tolist() == [[2, 0, 1]]


def test_votes_of_matchnet_do_not_grow_with_the_queries_of_a_class():
    """The sum of the votes would give both other queries to class 0, which three queries join."""
    directions = torch.tensor([0.0, 90.0]).deg2rad(), torch.tensor([5, 6, 7, 60, 62.0]).deg2rad()
    z_sup, z_qry = (torch.stack((a.cos(), a.sin()), -1).unsqueeze(0) for a in directions)
    head = MatchNet(2, 8, temperature=1.0)
    assert most_confident(head.log_posterior(z_sup, torch.tensor([[0, 1]]), z_qry, 2), 3)[
        1
    ].tolist() == [[0, 0, 0]]
    log_p = ConfidentQueries(head, n_rounds=1, share=0.6).log_posterior(
        z_sup, torch.tensor([[0, 1]]), z_qry, 2
    )
    assert log_p.argmax(-1).tolist() == [[0, 0, 0, 1, 1]]


def test_a_confident_query_moves_its_class():
    z_sup, y_sup = torch.tensor([[[0.0], [4.0]]]), torch.tensor([[0, 1]])
    z_qry = torch.tensor([[[7.0], [2.2]]])  # the first belongs to class 1, the second is between
    head = ConfidentQueries(NearestMean(1, 2), n_rounds=1, share=0.5)
    assert NearestMean(1, 2).log_posterior(z_sup, y_sup, z_qry, 2).argmax(-1).tolist() == [[1, 1]]
    log_p = head.log_posterior(z_sup, y_sup, z_qry, 2)  # class 1 is now at 5.5
    assert log_p.argmax(-1).tolist() == [[1, 0]]
    expected = torch.tensor([[-(2.2**2), -(3.3**2)]]).log_softmax(-1)
    torch.testing.assert_close(log_p[:, 1], expected)


def test_queries_improve_the_means_of_a_single_shot():
    episodes = synthetic_episodes(100, seed=0, n_query=15)
    plain, joined = (
        (_classify(head, episodes).argmax(-1) == episodes.y_qry).float().mean()
        for head in (NearestMean(24, 8), ConfidentQueries(NearestMean(24, 8)))
    )
    assert joined > plain + 0.02


@pytest.mark.parametrize(
    "make_head",
    [
        lambda: NearestMean(DIM, 8),
        lambda: MapHead(RelatNet(4, 8), DIM, (4, 4, 4)),
        lambda: MapHead(Can(4, 8, side=2), DIM, (4, 2, 2)),
        lambda: Gnn(DIM, 8, n_way=3, n_embedding=4, n_edge=4),
    ],
    ids=["NearestMean", "RelatNet", "Can", "Gnn"],
)
def test_contract(make_head):
    torch.manual_seed(1)
    head = randomise_norms(make_head())
    check_head(ConfidentQueries(head), relabels=not isinstance(head, Gnn))


def test_it_reads_what_the_head_reads():
    for head in (NearestMean(4, 8), Can(4, 8)):
        wrapped = ConfidentQueries(head)
        assert wrapped.reads == head.reads
        assert wrapped.transductive
        assert not head.transductive


def test_training_and_prototypes_are_those_of_the_head():
    head, episodes = Can(4, 8, side=2).double().eval(), map_episodes((4, 2, 2))
    wrapped = ConfidentQueries(head)
    assert wrapped.loss(episodes)[0] == head.loss(episodes)[0]
    assert set(wrapped.parameters()) == set(head.parameters())
    vectors = small_episodes()
    prototypes = ConfidentQueries(NearestMean(DIM, 8)).prototypes(vectors.z_sup, vectors.y_sup, 3)
    torch.testing.assert_close(prototypes, class_means(vectors.z_sup, vectors.y_sup, 3))


def test_heads_of_images_and_wrong_shares_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"must read vectors or maps.* ImageHead reads"):
        ConfidentQueries(ImageHead(4, 8))
    with pytest.raises(InvalidArgumentError, match=r"share must be between 0 and 1; got 1\.5"):
        ConfidentQueries(NearestMean(4, 8), share=1.5)
    with pytest.raises(InvalidArgumentError, match="n_rounds must be a whole number"):
        ConfidentQueries(NearestMean(4, 8), n_rounds=-1)
