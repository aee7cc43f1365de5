"""BAVARDAGE and alpha-AM in plain NumPy, float64, one task at a time; as in methods_numpy.py."""

import math

import numpy as np

from tests.reference.methods_numpy import (
    adam,
    finite_difference,
    information,
    mixed_means,
    softmax,
    squared_distances,
)
from tests.reference.tim_numpy import one_hot, prototypes


def digamma(x):
    """psi(x) = psi(x + 1) - 1/x up to x >= 30, then the asymptotic series."""
    below = 0.0
    while x < 30:
        below, x = below + 1 / x, x + 1
    series = 1 / (12 * x**2) - 1 / (120 * x**4) + 1 / (252 * x**6)
    return math.log(x) - 1 / (2 * x) - series - below


def bavardage(z_s, y_s, z_q, K, *, n_steps=10, n_start_steps=5, start_temperature=20.0,
              temperature=30.0, mean_weight=10.0, proportion_weight=2.0, project=True):  # fmt: skip
    """Soft k-means, then alpha_k, m_k and r_ik in turn, in the K - 1 dimensions of the means.

    alpha_k = alpha_0 - S_k + n_k; m_k = sum_i r_ik z_i / (beta_0 + n_k), n_k = sum_i r_ik;
    ln r_ik = psi(alpha_k) - psi(sum_k alpha_k) - tau/2 |U'z_i - U'm_k|^2
    - (K - 1) / (2 (beta_0 + n_k)), U a basis of the differences m_k - m_1 (project=False: U = I).
    """
    y, z = one_hot(y_s, K), np.concatenate([z_s, z_q])
    S = len(z_s)
    w = prototypes(z_s, y)
    for _ in range(min(n_start_steps, n_steps)):
        q = softmax(-start_temperature / 2 * squared_distances(z_q, w))
        w = mixed_means(z_s, y, z_q, q)
    for _ in range(n_steps - n_start_steps):
        r = np.concatenate([y, q])
        n = r.sum(axis=0)
        alpha, beta = proportion_weight - y.sum(axis=0) + n, mean_weight + n
        w = np.array([(r[:, k, None] * z).sum(axis=0) / beta[k] for k in range(K)])
        U = np.linalg.qr((w[1:] - w[0]).T)[0] if project else np.eye(z.shape[1])
        distances = squared_distances(z @ U, w @ U)
        log_r = np.zeros((len(z), K))
        for k in range(K):
            log_pi = digamma(alpha[k]) - digamma(alpha.sum())
            log_r[:, k] = log_pi - temperature / 2 * distances[:, k] - (K - 1) / (2 * beta[k])
        q = softmax(log_r)[S:]
    return {"p": q, "w": w}


def manifold_scores(w, g, h, z_s, z_q, c, n_neighbours):
    """F = (I - c D^-1/2 W D^-1/2)^-1 Y, W = h (A + A') / 2, A_ij = exp(-g_ij d_ij / std d).

    Nodes: w, z_s, z_q. A_ii = 0, rows of w are 0, others keep their largest and ties. Y: 1 on w.
    """
    nodes, K = np.concatenate([w, z_s, z_q]), len(w)
    n = len(nodes)
    d = np.sqrt(squared_distances(nodes, nodes))
    d = d / np.sqrt(((d - d.mean()) ** 2).sum() / (n * n - 1))
    A, W, B = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    for i in range(K, n):
        similar = {j: np.exp(-g[i, j] * d[i, j]) for j in range(n) if j != i}
        least = sorted(similar.values())[-min(n_neighbours, n - 1)]
        for j in similar:
            A[i, j] = similar[j] if similar[j] >= least else 0.0
    for i in range(n):
        for j in range(n):
            W[i, j] = h[i, j] * (A[i, j] + A[j, i]) / 2
    D = W.sum(axis=1) + 1e-12
    for i in range(n):
        for j in range(n):
            B[i, j] = W[i, j] / np.sqrt(D[i] * D[j])
    return np.linalg.inv(np.eye(n) - c * B)[:, :K]


def alpha_am_settings(S, K, n_neighbours, propagation, tsallis_alpha):
    """20 neighbours, c = 0.8, a = 2 below five examples per class; else 10, 0.9, 5."""
    published = (20, 0.8, 2.0) if S / K < 5 else (10, 0.9, 5.0)
    given = n_neighbours, propagation, tsallis_alpha
    return tuple(p if x is None else x for x, p in zip(given, published, strict=True))


def alpha_am_loss(w, g, h, z_s, y_s, z_q, temperature, n_neighbours, c, a):
    """CE - H_a(mean_i p_i) + mean_i H_a(p_i), p = softmax(tau F)."""
    K, S = len(w), len(z_s)
    scores = temperature * manifold_scores(w, g, h, z_s, z_q, c, n_neighbours)
    return information(scores[K : K + S], one_hot(y_s, K), scores[K + S :], a, 1.0, 1.0, 1.0)


def alpha_am(z_s, y_s, z_q, K, *, temperature=15.0, learning_rate=1e-4, n_steps=1000,
             n_neighbours=None, propagation=None, tsallis_alpha=None):  # fmt: skip
    """Adam from w = class means, g = 1, h = c; gradients by differences of the loss, h = 1e-5."""
    chosen = alpha_am_settings(len(z_s), K, n_neighbours, propagation, tsallis_alpha)
    most, c, a = chosen
    n = K + len(z_s) + len(z_q)
    start = [prototypes(z_s, one_hot(y_s, K)), np.ones((n, n)), np.full((n, n), c)]
    sizes = np.cumsum([0, *(part.size for part in start)])

    def parts(x):
        return [x[sizes[i] : sizes[i + 1]].reshape(start[i].shape) for i in range(3)]

    def loss(x):
        return alpha_am_loss(*parts(x), z_s, y_s, z_q, temperature, most, c, a)

    def gradient(x):
        return finite_difference(loss, x, h=1e-5)

    x = adam(np.concatenate([p.ravel() for p in start]), learning_rate, n_steps, gradient)
    w, g, h = parts(x)
    scores = manifold_scores(w, g, h, z_s, z_q, c, most)
    return {"p": softmax(temperature * scores[K + len(z_s) :]), "w": w}
