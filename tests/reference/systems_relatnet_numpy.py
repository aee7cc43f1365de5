"""RelatNet for one task in loops; weights by the names of the head's parameters."""

import numpy as np


def classify(weights, z_sup, y_sup, z_qry, n_way):
    """Log-probabilities, shape (query, class), of maps (n, channel, height, width)."""
    padding = 1 if z_sup.shape[2] < 10 and z_sup.shape[3] < 10 else 0
    rows = []
    for query in z_qry:
        scores = []
        for k in range(n_way):
            pair = np.concatenate((z_sup[y_sup == k].mean(0), query))
            h = _block(pair, weights, "compare", "norm", padding)
            h = _block(h, weights, "refine", "refine_norm", padding)
            h = h.reshape(len(h), -1).mean(1)
            hidden = np.maximum(0, weights["score.0.weight"] @ h + weights["score.0.bias"])
            scores.append((weights["score.2.weight"] @ hidden + weights["score.2.bias"])[0])
        scores = np.array(scores)
        rows.append(scores - scores.max() - np.log(np.exp(scores - scores.max()).sum()))
    return np.array(rows)


def _block(x, weights, convolution, norm, padding):
    W, b = weights[f"{convolution}.weight"], weights[f"{convolution}.bias"]
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding)))
    height, width = x.shape[1] - 2, x.shape[2] - 2
    out = np.zeros((len(W), height, width))
    for c in range(len(W)):
        for i in range(height):
            for j in range(width):
                out[c, i, j] = (W[c] * x[:, i : i + 3, j : j + 3]).sum() + b[c]
        deviation = np.sqrt(weights[f"{norm}.running_var"][c] + 1e-5)
        out[c] = (out[c] - weights[f"{norm}.running_mean"][c]) / deviation
        out[c] = np.maximum(0, out[c] * weights[f"{norm}.weight"][c] + weights[f"{norm}.bias"][c])
    pooled = np.zeros((len(W), height // 2, width // 2))
    for i in range(height // 2):
        for j in range(width // 2):
            pooled[:, i, j] = out[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max((1, 2))
    return pooled
