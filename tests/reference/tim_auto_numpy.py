"""TIM-auto in plain NumPy, one task at a time, from the steps of ``tim_numpy``."""

import numpy as np

from tests.reference.tim_numpy import one_hot, posterior, prototypes, q_step, w_step


def shrink(z_s, labels, K, kappa, alone=False):
    """(n_k w_k + kappa c m) / (n_k + kappa), m the mean of the class means, c = 1 or 1 - r^3."""
    w = prototypes(z_s, one_hot(labels, K))
    m = sum(w) / K
    if alone:
        by_chance = sum((w_k - m) @ (w_k - m) for w_k in w) / (K * (K - 1))
        m = (1 - min(by_chance / (m @ m), 1) ** 3) * m
    counts = [int((np.asarray(labels) == k).sum()) for k in range(K)]
    return np.array([(n * w_k + kappa * m) / (n + kappa) for n, w_k in zip(counts, w, strict=True)])


def smooth(z, share, k, tau=20.0):
    """Each query averaged with its k nearest, weights softmax(-tau/2 distance^2), same length."""
    out = np.empty_like(z)
    for i in range(len(z)):
        distance = ((z - z[i]) ** 2).sum(axis=1)
        near = [j for j in np.argsort(distance, kind="stable") if j != i][:k]
        weight = np.exp(-tau / 2 * (distance[near] - distance[near].min()))
        mean = (weight[:, None] * z[near]).sum(axis=0) / weight.sum()
        mixed = (1 - share) * z[i] + share * mean
        out[i] = mixed / np.sqrt((mixed**2).sum()) * np.sqrt((z[i] ** 2).sum())
    return out


def spread(z_s, labels, z_q, K, k, tau=20.0, a=0.9, longest=15):
    """log shares of the labels that reach each query along at most 15 edges; see graph_evidence."""
    z, n_s = np.concatenate((z_s, z_q)), len(z_s)
    n = len(z)
    A = np.zeros((n, n))
    for i in range(n):
        others = [j for j in range(n_s, n) if j != i]
        near = sorted(others, key=lambda j: ((z[i] - z[j]) ** 2).sum())[:k]
        for j in near:
            weight = np.exp(-min(tau / 2 * ((z[i] - z[j]) ** 2).sum(), 60)) / 2
            A[i, j] += weight
            A[j, i] += weight
    degree = A.sum(axis=1)
    step = a * A / np.sqrt(np.outer(degree, degree))
    y = np.zeros((n, K))
    for i, label in enumerate(labels):
        y[i, label] = 1 / (np.asarray(labels) == label).sum()
    arrived = sum(np.linalg.matrix_power(step, t) @ y for t in range(longest + 1))[n_s:]
    shares = np.full((len(z_q), K), 1 / K)
    for i, row in enumerate(arrived):
        if row.sum() > 0:
            shares[i] = row / row.sum()
    return np.log(np.maximum(shares, np.exp(-8)))


def alternate(z_s, y, z_q, w, n_steps, tau, lam, beta, alpha):
    """Steps of TIM-ADM from w."""
    for _ in range(n_steps):
        p_s, p_q = posterior(z_s, w, tau), posterior(z_q, w, tau)
        q = q_step(p_q, beta, alpha)
        w = w_step(z_s, y, z_q, w, p_s, p_q, q, lam, alpha)
    return w


def imbalance(p):
    """1 - H(mean prediction) / log K."""
    mean = p.mean(axis=0)
    return 1 + sum(r * np.log(r) for r in mean if r > 0) / np.log(p.shape[1])


def tim_auto(z_s, labels, z_q, K, *, n_steps, n_trial_steps, temperature,
             solve_temperature, cross_entropy_weight, conditional_entropy_weight,
             shrinkage, smoothing, n_neighbours, means_weight, graph_weight):  # fmt: skip
    """Probabilities, weights, outlier scores and the chosen weight."""
    y, start = one_hot(labels, K), shrink(z_s, labels, K, shrinkage)
    settings = (solve_temperature, cross_entropy_weight)
    w, beta, raw = shrink(z_s, labels, K, shrinkage, alone=True), None, z_q
    if len(z_q) >= 2 * K:
        z_q = smooth(z_q, smoothing, n_neighbours)
        evidence = 0.0
        for trial, weight in ((0.065, 0.2), (0.12, 0.8)):
            end = alternate(
                z_s, y, z_q, start, n_trial_steps, *settings, trial, conditional_entropy_weight
            )
            evidence += weight * imbalance(posterior(z_q, end, solve_temperature))
        chance = np.sqrt(sum(1 / column.sum() for column in y.T) / K**2 + 1 / len(z_q))
        beta = max(0.03, 0.8 * np.exp(-14 * evidence / chance))
        w = alternate(z_s, y, z_q, start, n_steps, *settings, beta, conditional_entropy_weight)
        means = log_posterior(raw, start, 100.0)
        u = evidence / chance / 0.19
        others = (u * np.exp(1 - u)) ** 3
        graph = spread(z_s, labels, raw, K, min(n_neighbours, len(raw) - 1))
        c = 0.7 * odds(means) ** 0.17 * odds(graph) ** 0.11 * beta**0.08
        scale = c / (1 + 3 * others) * temperature / 10.5
        distances = np.array([[((x - w_k) ** 2).sum() for w_k in w] for x in z_q])
        own = posterior(z_q, w, solve_temperature)
        weight = 1 + cross_entropy_weight / (1 + conditional_entropy_weight)
        share = own * min(K / (len(z_q) * weight), 0.1)
        score = -solve_temperature / 2 * distances / (1 - share) ** 2
        score += others * (means_weight * means + graph_weight * graph)
        score = scale * (score - score.max(axis=1, keepdims=True))
        p = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
    else:
        p = posterior(z_q, w, 100.0)
    distance = np.array([min(((x - w_k) ** 2).sum() for w_k in w) for x in z_q])
    return {"p": p, "w": w, "outlier": distance, "b": beta}


def odds(log_p):
    """m / (1 - m) of the mean confidence m, which is at most 0.99."""
    m = min(np.exp(log_p.max(axis=1)).mean(), 0.99)
    return m / (1 - m)


def log_posterior(z, w, tau):
    """Logarithms of posteriors, also of those that are too small for a number."""
    score = np.array([[-tau / 2 * ((x - w_k) ** 2).sum() for w_k in w] for x in z])
    score -= score.max(axis=1, keepdims=True)
    return score - np.log(np.exp(score).sum(axis=1, keepdims=True))
