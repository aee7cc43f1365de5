"""TIM-auto in plain NumPy, one task at a time, from the steps of ``tim_numpy``."""

import numpy as np

from tests.reference.tim_numpy import one_hot, posterior, prototypes, q_step, w_step


def shrink(z_s, labels, K, kappa):
    """(n_k w_k + kappa m) / (n_k + kappa), m the mean of the class means."""
    w = prototypes(z_s, one_hot(labels, K))
    m = sum(w) / K
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
             shrinkage, smoothing, n_neighbours):  # fmt: skip
    """Probabilities, weights, outlier scores and the chosen weight."""
    y, start = one_hot(labels, K), shrink(z_s, labels, K, shrinkage)
    settings = (solve_temperature, cross_entropy_weight)
    w, beta, reported = start, None, 100.0
    if len(z_q) >= 2 * K:
        z_q = smooth(z_q, smoothing, n_neighbours)
        evidence = 0.0
        for trial, weight in ((0.065, 0.2), (0.12, 0.8)):
            end = alternate(
                z_s, y, z_q, start, n_trial_steps, *settings, trial, conditional_entropy_weight
            )
            evidence += weight * imbalance(posterior(z_q, end, solve_temperature))
        chance = sum(1 / column.sum() for column in y.T) / K**2 + 1 / len(z_q)
        beta = max(0.04, 0.8 * np.exp(-14 * evidence / np.sqrt(chance)))
        reported = temperature * (len(z_s) / K) ** 0.4
        w = alternate(z_s, y, z_q, start, n_steps, *settings, beta, conditional_entropy_weight)
    distance = np.array([min(((x - w_k) ** 2).sum() for w_k in w) for x in z_q])
    return {"p": posterior(z_q, w, reported), "w": w, "outlier": distance, "b": beta}
