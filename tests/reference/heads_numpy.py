"""Heads of published few-shot systems in plain NumPy, float64, one task at a time.

Nothing here is shared with the package. z is [n, d], labels y_s [S], w [K, d]; y, p and scores are
[n, K], as in ``methods_numpy.py``.
"""

import numpy as np

from tests.reference.tim_numpy import one_hot


def ridge(z_s, y_s, K, regularization):
    """Normal equations of sum |w z - y|^2 + lambda |w|^2: (Z'Z + lambda I) w' = Z'Y."""
    d = z_s.shape[1]
    system = regularization * np.eye(d)
    right = np.zeros((d, K))
    for z, y in zip(z_s, one_hot(y_s, K), strict=True):
        system += np.outer(z, z)
        right += np.outer(z, y)
    return np.linalg.solve(system, right).T


def svm_objective(w, z_s, y_s, cost):
    """1/2 sum_k |w_k|^2 + C sum_i max_k(w_k.z_i + 1 - [k = y_i]) - w_{y_i}.z_i."""
    value = (w**2).sum() / 2
    for z, label in zip(z_s, y_s, strict=True):
        scores = w @ z + 1
        scores[label] -= 1
        value += cost * (scores.max() - w[label] @ z)
    return value


def onto_simplex(x, total):
    """max(x - t, 0), t = (sum of the n largest - total) / n for the n for which t is below them."""
    largest = sorted(x, reverse=True)
    for n in range(len(x), 0, -1):
        t = (sum(largest[:n]) - total) / n
        if largest[n - 1] > t:
            return np.maximum(x - t, 0)
    raise AssertionError("the largest entry is always above t")


def svm(z_s, y_s, K, cost, n_sweeps=1000):
    """Coordinate descent on the dual, one sample at a time.

    With the others fixed, alpha_i minimises 1/2 A |alpha_i|^2 + (B - y_i).alpha_i, A = |z_i|^2,
    B_k = z_i.(w_k without sample i), where C y_i - alpha_i lies in the simplex of size C.
    """
    y = one_hot(y_s, K)
    alpha, w = np.zeros_like(y), np.zeros((K, z_s.shape[1]))
    for _ in range(n_sweeps):
        for i, z in enumerate(z_s):
            A = z @ z
            B = w @ z - alpha[i] * A
            new = cost * y[i] - onto_simplex(cost * y[i] - (y[i] - B) / A, cost)
            w += np.outer(new - alpha[i], z)
            alpha[i] = new
    return w
