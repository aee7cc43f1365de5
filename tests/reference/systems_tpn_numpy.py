"""TPN in plain NumPy, float64, one task at a time, to be read against the paper.

layers holds weight and bias of the linear layers that give a sample its width.
"""

import numpy as np


def width(z, layers):
    """sigma = exp(g(z)), g linear layers with rectifiers between them."""
    for number, (weight, bias) in enumerate(layers):
        z = weight @ (np.maximum(z, 0) if number else z) + bias
    return float(np.exp(z[0]))


def tpn(z_s, y_s, z_q, K, layers, *, n_neighbours=20, propagation=0.99):
    """Log-probabilities of support and queries: rows of softmax(F), F = (I - a S)^-1 Y.

    W_ij = exp(-1/2 mean_d (z_i / sigma_i - z_j / sigma_j)^2), of which each row keeps its largest;
    an edge exists where one of its ends keeps it. S = D^-1/2 W D^-1/2.
    """
    z = np.concatenate([z_s, z_q])
    N = len(z)
    scaled = [a / width(a, layers) for a in z]
    W = np.array([[np.exp(-((a - b) ** 2).mean() / 2) for b in scaled] for a in scaled])
    edges = np.zeros((N, N), dtype=bool)
    for i in range(N):
        for j in sorted(range(N), key=lambda j: -W[i, j])[:n_neighbours]:
            edges[i, j] = edges[j, i] = True
    W = np.where(edges, W, 0.0)
    S = np.array([[W[i, j] / np.sqrt(W[i].sum() * W[j].sum()) for j in range(N)] for i in range(N)])
    Y = np.zeros((N, K))
    for i, label in enumerate(y_s):
        Y[i, label] = 1.0
    F = Y.copy()
    for _ in range(4000):  # F <- a S F + Y converges to the solution of the linear system
        F = propagation * S @ F + Y
    return F - np.log(np.exp(F - F.max()).sum(axis=1))[:, None] - F.max()


def loss(z_s, y_s, z_q, y_q, K, layers, **options):
    """Cross-entropy of all samples."""
    log_p, y = tpn(z_s, y_s, z_q, K, layers, **options), np.concatenate([y_s, y_q])
    return -sum(row[label] for row, label in zip(log_p, y, strict=True)) / len(y)
