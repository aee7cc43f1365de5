"""The paper in plain NumPy, float64, one task at a time, written to be read against its equations.

Nothing here is shared with the package: no torch, no Gram matrix, no log space, and the gradient is
the chain rule through the softmax, term by term. z is [n, d]; y, q and p are [n, K]; w is [K, d].
"""

import numpy as np


def posterior(z, w, tau):
    """Eq. 1: p_ik proportional to exp(-tau/2 |w_k - z_i|^2)."""
    n, K = len(z), len(w)
    p = np.zeros((n, K))
    for k in range(K):
        distance = ((w[k] - z) ** 2).sum(axis=1)
        p[:, k] = -tau / 2 * distance
    p = np.exp(p - p.max(axis=1)[:, None])
    for i in range(n):
        p[i] = p[i] / p[i].sum()
    return p


def one_hot(labels, K):
    y = np.zeros((len(labels), K))
    for i, label in enumerate(labels):
        y[i, label] = 1
    return y


def prototypes(z_s, y):
    K = y.shape[1]
    w = np.zeros((K, z_s.shape[1]))
    for k in range(K):
        for i in range(len(z_s)):
            w[k] += y[i, k] * z_s[i]
        w[k] /= y[:, k].sum()
    return w


def cross_entropy(p_s, y):
    total = 0.0
    for i in range(len(y)):
        for k in range(y.shape[1]):
            total -= y[i, k] * np.log(p_s[i, k])
    return total / len(y)


def marginal_entropy(p_q):
    total = 0.0
    for k in range(p_q.shape[1]):
        p_hat = p_q[:, k].sum() / len(p_q)
        total -= p_hat * np.log(p_hat)
    return total


def conditional_entropy(p_q):
    total = 0.0
    for i in range(len(p_q)):
        for k in range(p_q.shape[1]):
            total -= p_q[i, k] * np.log(p_q[i, k])
    return total / len(p_q)


def tim_loss(p_s, y, p_q, lam, beta, alpha, prior=None):
    """Eq. 3, with the marginal entropy weighted by beta and, with a prior, as a divergence."""
    loss = lam * cross_entropy(p_s, y) - beta * marginal_entropy(p_q)
    loss += alpha * conditional_entropy(p_q)
    if prior is not None:
        for k in range(len(prior)):
            loss -= beta * p_q[:, k].mean() * np.log(prior[k])
    return loss


def adm_loss(p_s, y, p_q, q, lam, beta, alpha):
    """Eq. 4, term by term."""
    loss = lam * cross_entropy(p_s, y)
    for k in range(q.shape[1]):
        q_hat = q[:, k].sum() / len(q)
        loss += beta * q_hat * np.log(q_hat)
    for i in range(len(q)):
        for k in range(q.shape[1]):
            loss -= alpha / len(q) * q[i, k] * np.log(p_q[i, k])
            loss += 1 / len(q) * q[i, k] * np.log(q[i, k] / p_q[i, k])
    return loss


def q_step(p_q, beta, alpha, prior=None):
    """Proposition 2, first line; beta = 1 gives the square root."""
    q = np.zeros_like(p_q)
    for k in range(p_q.shape[1]):
        powered = p_q[:, k] ** (1 + alpha)
        share = powered.sum() if prior is None else powered.sum() / prior[k]
        q[:, k] = powered / share ** (beta / (1 + beta))
    for i in range(len(q)):
        q[i] = q[i] / q[i].sum()
    return q


def w_step(z_s, y, z_q, w, p_s, p_q, q, lam, alpha, linearized=True):
    """Proposition 2, second line; without the linearised terms as the appendix remarks."""
    new = np.zeros_like(w)
    for k in range(len(w)):
        support = (y[:, k][:, None] * z_s).sum(axis=0)
        query = (q[:, k][:, None] * z_q).sum(axis=0)
        if linearized:
            support = support + (p_s[:, k][:, None] * (w[k] - z_s)).sum(axis=0)
            query = query + (p_q[:, k][:, None] * (w[k] - z_q)).sum(axis=0)
        ratio = len(z_s) / len(z_q)
        numerator = lam / (1 + alpha) * support + ratio * query
        denominator = lam / (1 + alpha) * y[:, k].sum() + ratio * q[:, k].sum()
        new[k] = numerator / denominator
    return new


def tim_adm(z_s, labels, z_q, K, *, n_steps=150, tau=15.0, lam=0.1, beta=1.0, alpha=0.1,
            prior=None, linearized=True, step_size=1.0):  # fmt: skip
    """Algorithm TIM-ADM. Returns query probabilities and weights."""
    y = one_hot(labels, K)
    w = prototypes(z_s, y)
    for _ in range(n_steps):
        p_s, p_q = posterior(z_s, w, tau), posterior(z_q, w, tau)
        q = q_step(p_q, beta, alpha, prior)
        new = w_step(z_s, y, z_q, w, p_s, p_q, q, lam, alpha, linearized)
        w = w + step_size * (new - w)
    return posterior(z_q, w, tau), w


def tim_gradient(z_s, y, z_q, w, tau, lam, beta, alpha, prior=None):
    """dL/dw_k = sum_ij dL/dp_ij dp_ij/dw_k, dp_ij/dw_k = p_ij ([j = k] - p_ik) tau (z_i - w_k)."""
    K = len(w)
    p_s, p_q = posterior(z_s, w, tau), posterior(z_q, w, tau)
    # d(lam CE)/dp_ij = -lam / |S| y_ij / p_ij
    dp_s = -lam / len(z_s) * y / p_s
    dp_q = np.zeros_like(p_q)
    for j in range(K):
        p_hat = p_q[:, j].mean()
        # d(-beta H(Y))/dp_ij = beta / |Q| (log p_hat_j + 1)
        dp_q[:, j] += beta / len(z_q) * (np.log(p_hat) + 1)
        # d(alpha H(Y|X))/dp_ij = -alpha / |Q| (log p_ij + 1)
        dp_q[:, j] -= alpha / len(z_q) * (np.log(p_q[:, j]) + 1)
        if prior is not None:
            dp_q[:, j] -= beta / len(z_q) * np.log(prior[j])
    gradient = np.zeros_like(w)
    for k in range(K):
        for z, p, dp in ((z_s, p_s, dp_s), (z_q, p_q, dp_q)):
            weight = np.zeros(len(z))
            for j in range(K):
                weight += dp[:, j] * p[:, j] * ((1.0 if j == k else 0.0) - p[:, k])
            gradient[k] += (weight[:, None] * tau * (z - w[k])).sum(axis=0)
    return gradient


def tim_gd(z_s, labels, z_q, K, *, n_steps=1000, learning_rate=1e-4, tau=15.0, lam=0.1, beta=1.0,
           alpha=0.1, prior=None):  # fmt: skip
    """Algorithm TIM-GD with Adam as published (Kingma and Ba, Algorithm 1)."""
    y = one_hot(labels, K)
    w = prototypes(z_s, y)
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t in range(1, n_steps + 1):
        g = tim_gradient(z_s, y, z_q, w, tau, lam, beta, alpha, prior)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.999**t)
        w = w - learning_rate * m_hat / (np.sqrt(v_hat) + 1e-8)
    return posterior(z_q, w, tau), w
