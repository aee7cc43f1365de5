"""Heads of published few-shot systems in plain NumPy, float64, one task at a time.

Nothing here is shared with the package. z is [n, d], labels y_s [S], w [K, d]; y, p and scores are
[n, K], as in ``methods_numpy.py``.
"""

import numpy as np

from tests.reference.methods_numpy import (
    baseline_gradient,
    cosines,
    cross_entropy_by_logits,
    matching,
    products,
    softmax,
    squared_distances,
    through_cosines,
    unit,
)
from tests.reference.tim_numpy import one_hot, prototypes


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


def meta_opt(z_s, y_s, z_q, K, *, problem, regularization, cost, temperature):
    """p = softmax_k(tau w_k.z) with the weights of either problem."""
    w = ridge(z_s, y_s, K, regularization) if problem == "ridge" else svm(z_s, y_s, K, cost)
    return {"p": softmax(temperature * products(z_q, w)), "w": w}


def _hash(x):
    """The finalizer of splitmix64 on Python's numbers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def bits(seed, stream, task, n):
    """32 bits for each of n positions: the upper halves of nested hashes with steps of phi."""
    phi = 0x9E3779B97F4A7C15
    root = _hash((_hash((seed + 1) * phi % 2**64) + stream * phi) % 2**64)
    start = _hash((root + task * phi) % 2**64)
    return np.array([_hash((start + i * phi) % 2**64) >> 32 for i in range(1, n + 1)])


def uniform(seed, stream, n):
    """Numbers from -1 to 1."""
    return bits(seed, stream, 0, n) / 2**31 - 1


def sgd(start, gradient, z_s, y_s, *, seed, n_steps, batch_size, learning_rate, momentum, dampening,
        weight_decay):  # fmt: skip
    """Passes over the samples in random order; w -= eta v, v = mu v + (1 - delta) (g + omega w).

    Samples are ordered by z.r for random r (stream 1), pass t by random bits of t (stream 3).
    """
    sorted_by_r = np.argsort(z_s @ uniform(seed, 1, z_s.shape[1]))
    w, v = start(y_s[sorted_by_r]), None
    for t in range(n_steps):
        order = sorted_by_r[np.argsort(bits(seed, 3, t, len(z_s)))]
        for first in range(0, len(z_s), batch_size):
            rows = order[first : first + batch_size]
            g = gradient(w, z_s[rows], y_s[rows]) + weight_decay * w
            v = g if v is None else momentum * v + (1 - dampening) * g
            w = w - learning_rate * v
    return w


def random_weights(labels, K, n, d, seed):
    """Row j of uniform numbers / sqrt(d) (stream 2) for the class that is the j-th to occur."""
    rows = uniform(seed, 2, K * n).reshape(K, n) / np.sqrt(d)
    occurring = list(dict.fromkeys(labels.tolist()))
    return np.array([rows[occurring.index(k)] for k in range(K)])


def baseline_sgd(z_s, y_s, z_q, K, *, temperature, seed, **options):
    """Linear layer with bias: the last column, the weight of a feature of 1."""
    d = z_s.shape[1]

    def gradient(w, z, y):
        ones = np.concatenate([z, np.ones((len(z), 1))], axis=1)
        return baseline_gradient(w, ones, y, K, temperature=temperature)

    def start(labels):
        return random_weights(labels, K, d + 1, d, seed)

    w = sgd(start, gradient, z_s, y_s, seed=seed, **options)
    scores = products(z_q, w[:, :d]) + w[:, d]
    return {"p": softmax(temperature * scores), "w": w[:, :d]}


def baseline_plus_plus_sgd(z_s, y_s, z_q, K, *, temperature, learns_lengths, seed, **options):
    """l_ik = tau r_k cos(v_k, z_i); the last column of theta is r, which starts at |v_k|, or 1."""
    d = z_s.shape[1]

    def gradient(theta, z, y):
        v, r = theta[:, :d], theta[:, d]
        c = cosines(z, v)
        dl = cross_entropy_by_logits(temperature * r * c, one_hot(y, K))
        of_r = (dl * temperature * c).sum(axis=0) if learns_lengths else -weight_decay * r
        of_v = through_cosines(z, v, temperature * r * dl)
        return np.concatenate([of_v, of_r[:, None]], axis=1)

    def start(labels):
        v = random_weights(labels, K, d, d, seed)
        r = np.sqrt((v**2).sum(axis=1)) if learns_lengths else np.ones(K)
        return np.concatenate([v, r[:, None]], axis=1)

    weight_decay = options["weight_decay"]  # taken back for lengths that are not learned
    theta = sgd(start, gradient, z_s, y_s, seed=seed, **options)
    w = temperature * theta[:, d:] * unit(theta[:, :d])
    return {"p": softmax(products(unit(z_q), w)), "w": w}


def with_confident(z_s, y_s, z_q, p, n):
    """The support and the n queries with the largest max_k p_ik, labelled by their argmax."""
    chosen = sorted(range(len(z_q)), key=lambda i: -p[i].max())[:n]
    labels = [int(p[i].argmax()) for i in chosen]
    return np.concatenate([z_s, z_q[chosen]]), np.concatenate([y_s, labels]).astype(int)


def prototype_t(z_s, y_s, z_q, K, *, temperature, n_steps, share):
    """w = means over support and confident queries, r floor(share N) of them in round r."""
    w = prototypes(z_s, one_hot(y_s, K))
    for r in range(1, n_steps + 1):
        p = softmax(-temperature / 2 * squared_distances(z_q, w))
        n = r * int(np.floor(share * len(z_q) + 1e-9))
        z, y = with_confident(z_s, y_s, z_q, p, min(n, len(z_q)))
        w = prototypes(z, one_hot(y, K))
    return {"p": softmax(-temperature / 2 * squared_distances(z_q, w)), "w": w}


def matching_t(z_s, y_s, z_q, K, *, temperature, n_steps, share):
    """Matching with support and confident queries as voters, averaged over those of each class."""

    def posterior(z, y):
        p = matching(z, y, z_q, K, temperature=temperature)["p"] / one_hot(y, K).sum(axis=0)
        return p / p.sum(axis=1)[:, None]

    z, y = z_s, y_s
    for r in range(1, n_steps + 1):
        n = r * int(np.floor(share * len(z_q) + 1e-9))
        z, y = with_confident(z_s, y_s, z_q, posterior(z, y), min(n, len(z_q)))
    return {"p": posterior(z, y), "w": prototypes(z, one_hot(y, K))}
