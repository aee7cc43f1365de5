"""SIB in plain NumPy, float64, one task at a time, to be read against the paper.

P holds scale, channel_weight [d], and of the network g: weight and bias of linear layers (linear),
gain and offset of batch normalisations (norm). Derivatives of the scores by the class weights are
taken by complex steps, f'(x) = Im f(x + ih) / h.
"""

import numpy as np

H = 1e-30


def length(x):
    return np.sqrt((x**2).sum())


def synthetic_gradient(scores, P):
    """g(s): linear, rectifier, batch normalisation over the queries, twice; then linear."""
    x = scores
    for (weight, bias), (gain, offset) in zip(P["linear"][:-1], P["norm"], strict=True):
        x = np.maximum(x @ weight.T + bias, 0)
        mean = x.sum(axis=0) / len(x)
        variance = ((x - mean) ** 2).sum(axis=0) / len(x)
        x = (x - mean) / np.sqrt(variance + 1e-5) * gain + offset
    weight, bias = P["linear"][-1]
    return x @ weight.T + bias


def score(z, w, P):
    return P["scale"] * (z @ w) / (length(z) * length(w))


def sib(z_s, y_s, z_q, K, P, *, n_steps=3, learning_rate=1e-3):
    """Log-probabilities of the queries."""
    w = []
    for k in range(K):
        chosen = [z / length(z) for z, y in zip(z_s, y_s, strict=True) if y == k]
        w.append(P["channel_weight"] * sum(chosen) / len(chosen))
    w = np.array(w)
    for _ in range(n_steps):
        g = synthetic_gradient(np.array([[score(z, v, P) for v in w] for z in z_q]), P)
        gradient = np.zeros_like(w)
        for k in range(K):
            for d in range(w.shape[1]):
                moved = w[k].astype(complex)
                moved[d] += 1j * H
                slopes = [score(z, moved, P).imag / H for z in z_q]
                gradient[k, d] = sum(g[i, k] * slope for i, slope in enumerate(slopes))
        w = w - learning_rate * gradient
    scores = np.array([[score(z, v, P) for v in w] for z in z_q])
    shifted = scores - scores.max(axis=1)[:, None]
    return shifted - np.log(np.exp(shifted).sum(axis=1))[:, None]
