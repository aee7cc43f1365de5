"""FEAT in plain NumPy, float64, one task at a time, to be read against the paper.

P holds the parameters: query, key, value [d, d], output [d, d], output_bias, gain, offset [d].
"""

import numpy as np


def layer_norm(x, gain, offset):
    """(x - mean) / sqrt(variance + 1e-5), times gain, plus offset."""
    centred = x - x.sum() / len(x)
    return centred / np.sqrt((centred**2).sum() / len(x) + 1e-5) * gain + offset


def adapt(xs, P):
    """Self-attention over a set: LN(x_k + W_o sum_l a_kl W_v x_l + b_o)."""
    adapted = []
    for x in xs:
        scores = [(P["query"] @ x) @ (P["key"] @ other) / np.sqrt(len(x)) for other in xs]
        weights = np.exp(np.array(scores) - max(scores))
        weights = weights / weights.sum()
        mixed = sum(a * (P["value"] @ other) for a, other in zip(weights, xs, strict=True))
        output = P["output"] @ mixed + P["output_bias"]
        adapted.append(layer_norm(x + output, P["gain"], P["offset"]))
    return np.array(adapted)


def mean_of(z, y, k):
    """Mean of the samples of class k."""
    chosen = [a for a, label in zip(z, y, strict=True) if label == k]
    return sum(chosen) / len(chosen)


def nearest(z, centres, divisor):
    """log p_ik with p_ik ~ exp(-|z_i - c_k|^2 / divisor)."""
    logits = np.array([[-((a - c) ** 2).sum() / divisor for c in centres] for a in z])
    shifted = logits - logits.max(axis=1)[:, None]
    return shifted - np.log(np.exp(shifted).sum(axis=1))[:, None]


def feat(z_s, y_s, z_q, K, P):
    """Log-probabilities of the queries, and the adapted means."""
    adapted = adapt([mean_of(z_s, y_s, k) for k in range(K)], P)
    return nearest(z_q, adapted, 64.0), adapted


def cross_entropy(log_p, y):
    return -sum(row[label] for row, label in zip(log_p, y, strict=True)) / len(y)


def loss(z_s, y_s, z_q, y_q, K, P, *, weight, divisor):
    """Cross-entropy of the queries + weight * regulariser.

    The regulariser adapts all samples of a class as one set and classifies all samples, not
    adapted, by the means of the sets.
    """
    z, y = np.concatenate([z_s, z_q]), np.concatenate([y_s, y_q])
    centres = []
    for k in range(K):
        members = [a for a, label in zip(z, y, strict=True) if label == k]
        centres.append(adapt(members, P).mean(axis=0))
    regulariser = cross_entropy(nearest(z, np.array(centres), divisor), y)
    return cross_entropy(feat(z_s, y_s, z_q, K, P)[0], y_q) + weight * regulariser
