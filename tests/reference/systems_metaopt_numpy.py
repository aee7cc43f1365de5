"""MetaOpt in plain NumPy, float64, one task at a time, to be read against the paper."""

import numpy as np


def ridge(z, y, K, regularization):
    """W = (Z^T Z + lambda I)^-1 Z^T Y, the primal form; returns [K, d]."""
    Y = np.array([[float(label == k) for k in range(K)] for label in y])
    return np.linalg.solve(z.T @ z + regularization * np.eye(z.shape[1]), z.T @ Y).T


def svm(z, y, K, cost, n_sweeps=4000):
    """Crammer and Singer's machine by coordinate steps on its dual; returns [K, d].

    max sum_i alpha_iy - 1/2 sum_k |w_k|^2, w_k = sum_i alpha_ik z_i, with alpha_ik <= C [k = y_i]
    and sum_k alpha_ik = 0. A step moves an amount t between two classes of a sample, which keeps
    the sum; the best t is (gain of the move) / (2 |z_i|^2), cut where a bound is met.
    """
    alpha = np.zeros((len(z), K))
    w = np.zeros((K, z.shape[1]))
    for _ in range(n_sweeps):
        moved = 0.0
        for i, label in enumerate(y):
            for a in range(K):
                for b in range(K):
                    upper = cost * (label == a) - alpha[i, a]
                    gain = (label == a) - w[a] @ z[i] - ((label == b) - w[b] @ z[i])
                    t = min(max(gain / (2 * z[i] @ z[i]), 0.0), upper)
                    if a != b and t > 0:
                        alpha[i, a] += t
                        alpha[i, b] -= t
                        w[a] += t * z[i]
                        w[b] -= t * z[i]
                        moved = max(moved, t)
        if moved < 1e-15:
            break
    return w


def log_probabilities(z_q, w, scale):
    logits = np.array([[scale * (a @ v) for v in w] for a in z_q])
    shifted = logits - logits.max(axis=1)[:, None]
    return shifted - np.log(np.exp(shifted).sum(axis=1))[:, None]


def smoothed_cross_entropy(log_p, y, epsilon):
    """Targets are 1 - epsilon for the true class, epsilon / (K - 1) for the others."""
    total = 0.0
    for row, label in zip(log_p, y, strict=True):
        for k, value in enumerate(row):
            target = 1 - epsilon if k == label else epsilon / (len(row) - 1)
            total -= target * value
    return total / len(y)
