"""ProtoNet and MatchNet from their papers: loops over one task in float64, no tensors."""

import math

import numpy as np


def protonet(support, labels, queries, n_way, tau=2.0):
    """Probabilities of one task: exp(-tau/2 d^2) from the class means, normalised."""
    means = []
    for k in range(n_way):
        rows = [x for x, label in zip(support, labels, strict=True) if label == k]
        means.append(sum(rows) / len(rows))
    table = []
    for q in queries:
        distances = [sum((a - b) ** 2 for a, b in zip(q, c, strict=True)) for c in means]
        weights = [math.exp(-tau / 2 * (d - min(distances))) for d in distances]
        table.append([w / sum(weights) for w in weights])
    return np.array(table)


def matchnet(support, labels, queries, n_way, tau=100.0):
    """Probabilities of one task: the mean attention of the examples of a class, normalised."""
    table = []
    for q in queries:
        cosines = []
        for x in support:
            product = sum(a * b for a, b in zip(q, x, strict=True))
            cosines.append(product / math.sqrt(sum(q**2)) / math.sqrt(sum(x**2)))
        attention = [math.exp(tau * (c - max(cosines))) for c in cosines]
        votes = []
        for k in range(n_way):
            of_class = [w for w, label in zip(attention, labels, strict=True) if label == k]
            votes.append(sum(of_class) / len(of_class))
        table.append([vote / sum(votes) for vote in votes])
    return np.array(table)
