import torch
from torch.nn.functional import normalize

from infoshot.labelling.classifier import class_centres, outlier_cutoff, outlier_scores


def draw(classes, generator, noise=0.6):
    centres = torch.linalg.qr(torch.randn(64, 12, generator=torch.Generator().manual_seed(0))).Q.T
    noise = noise * torch.randn(len(classes), 64, generator=generator) / 8
    return normalize(centres[classes] + noise, dim=-1)


def cutoff_by_loops(z_sup, y_sup, n_way):
    """Score every example against the class means of all others."""
    scores = []
    for i in range(len(z_sup)):
        rest = [j for j in range(len(z_sup)) if j != i]
        means = [z_sup[[j for j in rest if y_sup[j] == k]].mean(0) for k in range(n_way)]
        scores.append(1 - max(float(z_sup[i] @ mean / mean.norm()) for mean in means))
    return float(torch.tensor(scores).quantile(0.95))


def test_cutoff_is_the_quantile_of_leave_one_out_scores():
    generator = torch.Generator().manual_seed(1)
    y_sup = torch.arange(24) % 4
    z_sup = draw(y_sup, generator)
    usable = torch.ones(24, dtype=torch.bool)
    cutoff = outlier_cutoff(z_sup, y_sup, 4, usable, torch.zeros(3))
    assert abs(cutoff - cutoff_by_loops(z_sup, y_sup, 4)) < 1e-6


def test_few_images_of_the_classes_and_all_others_are_outliers():
    generator = torch.Generator().manual_seed(1)
    y_sup = torch.arange(60) % 4
    z_sup = draw(y_sup, generator)
    cutoff = outlier_cutoff(z_sup, y_sup, 4, torch.ones(60, dtype=torch.bool), torch.zeros(3))
    centres = class_centres(z_sup, y_sup, 4)
    known = outlier_scores(draw(torch.arange(2000) % 4, generator), centres) > cutoff
    assert 0.01 < known.float().mean() < 0.1
    assert (outlier_scores(draw(torch.arange(400) % 4 + 4, generator), centres) > cutoff).all()


def test_cutoff_is_that_of_the_images_if_examples_are_few():
    y_sup = torch.arange(4)
    scores = torch.linspace(0, 1, 101)
    cutoff = outlier_cutoff(torch.eye(4), y_sup, 4, torch.ones(4, dtype=torch.bool), scores)
    assert abs(cutoff - 1.5) < 1e-6  # median + 2.5 (90 % - median) of the images
