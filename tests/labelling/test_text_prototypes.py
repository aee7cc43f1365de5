"""Texts of classes as examples, on features whose answers are known."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from infoshot import TaskBatch, solve
from infoshot.labelling.text_prototypes import TextPrototypes
from infoshot.solvers.baselines.prototype import Prototype
from infoshot.solvers.objective import support_cross_entropy

DIM, A, B = 32, 0.8, 0.6
AXES = torch.eye(DIM)
NAMES = ("ant", "bee", "cow")
PLACES = torch.stack([A * AXES[0] + B * AXES[k + 1] for k in range(3)])
TEXTS = torch.stack([A * AXES[31] + B * AXES[k + 1] for k in range(3)])
NOTHING = torch.empty(0, DIM), torch.empty(0, dtype=torch.int64)


def draw(classes, length=1.0, noise=0.3):
    generator = torch.Generator().manual_seed(0)
    around = PLACES[classes] + noise / math.sqrt(DIM) * torch.randn(
        len(classes), DIM, generator=generator
    )
    return length * normalize(around, dim=1)


def test_texts_are_moved_to_the_images_of_their_class():
    # The shares of the classes are 10:2:1: the mean of the images is far from the mean of the
    # places, and so would the texts be if the mean image were compared with the mean text.
    truth = torch.tensor([0] * 200 + [1] * 40 + [2] * 20)
    z_qry = draw(truth, length=7.0)
    z, y = TextPrototypes(NAMES, TEXTS, 1).append(*NOTHING, z_qry, NAMES)
    assert y.tolist() == [0, 1, 2]
    torch.testing.assert_close(normalize(z, dim=1), PLACES, atol=0.03, rtol=0)
    assert z.norm(dim=1).tolist() == pytest.approx([7] * 3, rel=0.05)


def test_examples_say_where_images_of_their_class_are():
    # All images look like the text of 'bee'; one example says that those are 'ant'.
    z_sup, y_sup = PLACES[1:2], torch.tensor([0])
    z, y = TextPrototypes(NAMES, TEXTS, 1).append(z_sup, y_sup, PLACES[1:2], NAMES)
    gap = ((PLACES[1] - TEXTS[0]) + (PLACES[1] - TEXTS[1])) / 2
    torch.testing.assert_close(z[1:], TEXTS + gap)
    assert y.tolist() == [0, 0, 1, 2]


def test_a_class_with_examples_does_not_attract_all_images():
    # Texts that stay where they are lie 1.1 from the images of their class, and images of another
    # class only 0.8.
    truth, examples = torch.arange(3).repeat(20), torch.zeros(5, dtype=torch.int64)
    z_qry, z_sup = draw(truth), draw(examples)
    z, y = TextPrototypes(NAMES, TEXTS, 1).append(z_sup, examples, z_qry, NAMES)

    def accuracy(support):
        tasks = TaskBatch(normalize(support, dim=1)[None], y[None], z_qry[None], 3)
        found = solve(Prototype(), tasks).probabilities[0].argmax(1)
        return (found == truth).double().mean().item()

    assert accuracy(z) == 1
    assert accuracy(torch.cat((z_sup, TEXTS))) == pytest.approx(1 / 3)


@pytest.mark.parametrize("weight", [1, 4])
@pytest.mark.parametrize("n_shot", [0, 1, 5])
def test_a_text_counts_as_its_weight_in_examples(weight, n_shot):
    y_sup, z_qry = torch.arange(3).repeat_interleave(n_shot), draw(torch.arange(3).repeat(9))
    z_sup = draw(y_sup) if n_shot else NOTHING[0]
    texts = TextPrototypes(NAMES, TEXTS, weight)
    z, y = texts.append(z_sup, y_sup, z_qry, NAMES)
    moved = z[len(y_sup) :: weight]
    assert torch.equal(z[: len(y_sup)], z_sup)
    assert torch.equal(y.bincount(), torch.full((3,), weight + n_shot))
    means = torch.stack([z_sup[y_sup == k].sum(0) for k in range(3)])
    means = (weight * moved + means) / (weight + n_shot)
    tasks = TaskBatch(z[None], y[None], z_qry[None], 3)
    torch.testing.assert_close(solve(Prototype(), tasks).prototypes[0], means)
    # The cross-entropy of the support, with every text weighted.
    log_p = torch.log_softmax(-torch.cdist(z, means).square(), dim=1)
    weights = torch.cat((torch.ones(len(y_sup)), torch.full((3,), float(weight))))
    own = torch.cat((log_p[: len(y_sup)], log_p[len(y_sup) :: weight]))
    labels = torch.cat((y_sup, torch.arange(3)))
    expected = -(weights * own[torch.arange(len(own)), labels]).sum() / weights.sum()
    assert support_cross_entropy(log_p[None], y[None]).item() == pytest.approx(expected.item())


def test_classes_without_a_text_have_their_examples_only():
    classes = ("ant", "bee", "cow", "dog")
    z_sup, y_sup = -PLACES[:1], torch.tensor([3])
    z, y = TextPrototypes(NAMES, TEXTS, 2).append(z_sup, y_sup, PLACES, classes)
    assert y.tolist() == [3, 0, 0, 1, 1, 2, 2]
    torch.testing.assert_close(z[1::2], PLACES)  # the example of 'dog' does not move the texts
