import torch
from infoshot.labelling.outliers import class_centres, cut_off, strangeness
from torch.nn.functional import normalize


def drawn(classes, generator, noise=0.6):
    centres = torch.linalg.qr(torch.randn(64, 12, generator=torch.Generator().manual_seed(0))).Q.T
    noise = noise * torch.randn(len(classes), 64, generator=generator) / 8
    return normalize(centres[classes] + noise, dim=-1)


def limit_by_loops(z_sup, y_sup, n_way):
    """Every example against the class means of all others."""
    scores = []
    for i in range(len(z_sup)):
        rest = [j for j in range(len(z_sup)) if j != i]
        means = [z_sup[[j for j in rest if y_sup[j] == k]].mean(0) for k in range(n_way)]
        scores.append(1 - max(float(z_sup[i] @ mean / mean.norm()) for mean in means))
    return float(torch.tensor(scores).quantile(0.95))


def test_limit_is_that_of_examples_against_the_others():
    generator = torch.Generator().manual_seed(1)
    y_sup = torch.arange(24) % 4
    z_sup = drawn(y_sup, generator)
    everyone = torch.ones(24, dtype=torch.bool)
    limit = cut_off(z_sup, y_sup, 4, everyone, torch.zeros(3))
    assert abs(limit - limit_by_loops(z_sup, y_sup, 4)) < 1e-6


def test_most_photos_of_the_classes_are_inside_and_strangers_outside():
    generator = torch.Generator().manual_seed(1)
    y_sup = torch.arange(60) % 4
    z_sup = drawn(y_sup, generator)
    limit = cut_off(z_sup, y_sup, 4, torch.ones(60, dtype=torch.bool), torch.zeros(3))
    centres = class_centres(z_sup, y_sup, 4)
    known = strangeness(drawn(torch.arange(2000) % 4, generator), centres) > limit
    assert 0.01 < known.float().mean() < 0.1
    assert (strangeness(drawn(torch.arange(400) % 4 + 4, generator), centres) > limit).all()


def test_few_examples_are_not_judged_by():
    y_sup = torch.arange(4)
    scores = torch.linspace(0, 1, 101)
    limit = cut_off(torch.eye(4), y_sup, 4, torch.ones(4, dtype=torch.bool), scores)
    assert abs(limit - 1.5) < 1e-6  # the photos' median, and 2.5 times from there to nine in ten
