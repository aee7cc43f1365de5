import torch

from infoshot.solvers.confident_queries import (
    SHARE,
    add_most_confident,
    most_confident,
    queries_of_round,
)

P = torch.tensor(
    [[[0.6, 0.4], [0.1, 0.9], [0.3, 0.7]], [[0.5, 0.5], [0.05, 0.95], [0.99, 0.01]]]
)  # two tasks, three queries


def test_the_most_confident_are_chosen_with_their_labels():
    chosen, labels = most_confident(P.log(), 2)
    assert chosen.tolist() == [[1, 2], [2, 1]]
    assert labels.tolist() == [[1, 1], [0, 1]]
    assert most_confident(P.log(), 0)[0].shape == (2, 0)


def test_they_join_the_support_whatever_a_sample_is():
    for shape in ((), (4,), (4, 2, 2)):
        z_qry = torch.arange(6.0).view(2, 3, *(1,) * len(shape)).expand(2, 3, *shape)
        z_sup, y_sup = torch.full((2, 1, *shape), -1.0), torch.tensor([[0], [1]])
        z, y = add_most_confident(z_sup, y_sup, z_qry, P.log(), 2)
        assert z.reshape(2, 3, -1)[..., 0].tolist() == [[-1, 1, 2], [-1, 5, 4]]
        assert y.tolist() == [[0, 1, 1], [1, 0, 1]]


def test_the_published_numbers_of_queries():
    assert [queries_of_round(75, SHARE, number) for number in (1, 2)] == [35, 70]
    assert [queries_of_round(n, SHARE, 2) for n in (1, 2, 3, 15)] == [0, 0, 2, 14]
    assert queries_of_round(5, 0.9, 2) == 5
