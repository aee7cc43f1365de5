"""LEO in plain NumPy, float64, one task at a time, to be read against the paper.

Nothing here is shared with the package. Matrices are a dictionary: "encoder" [L, d], "relation" a
list of three [2L, 2L], "decoder" [2d, L], "latent_rates" [L], "weight_rates" [d]. x is [n, d],
codes are [K, L], weights [K, d]. Noise is an iterator of standard normal numbers, or None for the
means. Derivatives are complex steps, df/dx = Im f(x + ih) / h, exact to rounding for h = 1e-30.
"""

import numpy as np


def unit(x):
    """x / |x|, row by row."""
    return np.array([row / np.sqrt((row**2).sum()) for row in x])


def log_softmax(logits):
    """l_k - log sum_j exp(l_j)."""
    shifted = logits - logits.real.max()
    return shifted - np.log(np.exp(shifted).sum())


def relate(matrices, a, b):
    """Two hidden layers with ReLU and a linear one, on a pair of encoded samples."""
    first, second, third = matrices["relation"]
    hidden = np.maximum(first @ np.concatenate((a, b)), 0)
    return third @ np.maximum(second @ hidden, 0)


def encode(matrices, x, y, n_way):
    """Mean over the pairs of a class with all samples, [K, 2L]."""
    encoded = [matrices["encoder"] @ row for row in x]
    rows = []
    for k in range(n_way):
        pairs = [relate(matrices, encoded[i], b) for i in np.flatnonzero(y == k) for b in encoded]
        rows.append(sum(pairs) / len(pairs))
    return np.array(rows)


def scale_of(raw, start):
    """exp(u) - 1 + start, at least 1e-10; u may be complex."""
    scale = np.exp(raw) - 1 + start
    return np.where(scale.real > 1e-10, scale, 1e-10)


def decode(matrices, codes, noise):
    """Class weights: mean, or mean plus noise times scale."""
    n_way, dim = len(codes), len(matrices["weight_rates"])
    decoded = codes @ matrices["decoder"].T
    if noise is None:
        return decoded[:, :dim]
    return decoded[:, :dim] + noise * scale_of(decoded[:, dim:], np.sqrt(2 / (dim + n_way)))


def support_loss(weights, x, y):
    """-K/|S| sum_i log p(y_i)."""
    n_way = len(weights)
    return -n_way / len(x) * sum(log_softmax(weights @ x[i])[y[i]] for i in range(len(x)))


def gradient(f, x):
    """df/dx, one complex step per number."""
    result = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[place] += 1e-30j
        result[place] = f(moved).imag / 1e-30
    return result


def adapt(matrices, x, y, n_way, noise=None, n_steps=5):
    """Adapted weights, the start of the codes, their end, and their distribution."""
    n_latents, dim = len(matrices["latent_rates"]), len(matrices["weight_rates"])
    distribution = encode(matrices, x, y, n_way)
    mean, scale = distribution[:, :n_latents], scale_of(distribution[:, n_latents:], 0.0)
    start = codes = mean if noise is None else mean + scale * next(noise)
    drawn = None if noise is None else next(noise)
    for _ in range(n_steps):
        step = gradient(lambda c, e=drawn: support_loss(decode(matrices, c, e), x, y), codes)
        codes = codes - matrices["latent_rates"] * step
        drawn = None if noise is None else next(noise)
    weights = decode(matrices, codes, drawn)
    assert weights.shape == (n_way, dim)
    for _ in range(n_steps):
        step = gradient(lambda w: support_loss(w, x, y), weights)
        weights = weights - matrices["weight_rates"] * step
    return weights, start, codes, mean, scale


def leo(matrices, x_sup, y_sup, x_qry, n_way):
    """Log-probabilities of the queries, [N, K]."""
    weights = adapt(matrices, unit(x_sup), y_sup, n_way)[0]
    return np.array([log_softmax(weights @ row) for row in unit(x_qry)])


def loss(matrices, tasks, n_way, weights_of_terms, noises):
    """Mean over tasks of query cross-entropy, KL and code penalty; plus the matrices' penalties."""
    beta, gamma, lambda_1, lambda_2 = weights_of_terms
    total = 0.0
    for (x_sup, y_sup, x_qry, y_qry), noise in zip(tasks, noises, strict=True):
        weights, start, end, mean, scale = adapt(matrices, unit(x_sup), y_sup, n_way, noise)
        log_p = [log_softmax(weights @ row) for row in unit(x_qry)]
        cross_entropy = -np.mean([row[label] for row, label in zip(log_p, y_qry, strict=True)])
        kl = np.mean([
            (s**2 + m**2 - 1) / 2 - np.log(s)
            for m, s in zip(mean.ravel(), scale.ravel(), strict=True)
        ])  # fmt: skip
        total += (cross_entropy + beta * kl + gamma * ((end - start) ** 2).mean()) / len(tasks)
    everything = [matrices["encoder"], *matrices["relation"], matrices["decoder"]]
    squares = sum((matrix**2).sum() for matrix in everything)
    return total + lambda_1 * squares / 2 + lambda_2 * correlation(matrices["decoder"])


def correlation(decoder):
    """Mean of (C - I)^2 with the correlations C_ab = d_a.d_b / |d_a||d_b| of the columns."""
    n = decoder.shape[1]
    entries = []
    for a in range(n):
        for b in range(n):
            lengths = np.sqrt((decoder[:, a] ** 2).sum() * (decoder[:, b] ** 2).sum())
            entries.append((decoder[:, a] @ decoder[:, b] / lengths - (a == b)) ** 2)
    return np.mean(entries)
