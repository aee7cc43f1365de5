"""CAN for one task in loops; weights by the names of the head's parameters.

Maps have the shape (channel, positions); attention, pooling and losses follow the paper pair by
pair, with the attended maps written out.
"""

import numpy as np

TAU, SCALE, LAMBDA = 0.025, 7.0, 0.5


def classify(weights, z_sup, y_sup, z_qry, n_way):
    """Log-probabilities, shape (query, class), of maps (n, channel, positions)."""
    rows = []
    for Q in z_qry:
        scores = []
        for k in range(n_way):
            P_bar, Q_bar = _attend(weights, z_sup[y_sup == k].mean(0), Q)
            scores.append(SCALE * _cosine(P_bar.mean(1), Q_bar.mean(1)))
        rows.append(_log_softmax(np.array(scores)))
    return np.array(rows)


def loss(weights, z_sup, y_sup, z_qry, y_qry, base_labels, n_way):
    """The training loss of a task."""
    V, v = weights["base_classifier.weight"], weights["base_classifier.bias"]
    total, m = 0.0, z_qry.shape[2]
    for Q, y, g in zip(z_qry, y_qry, base_labels, strict=True):
        pairs = [_attend(weights, z_sup[y_sup == k].mean(0), Q) for k in range(n_way)]
        for j in range(m):
            cosines = [_cosine(Q_bar[:, j], P_bar.mean(1)) for P_bar, Q_bar in pairs]
            total -= LAMBDA * _log_softmax(SCALE * np.array(cosines))[y]
            total -= _log_softmax(V @ pairs[y][1][:, j] + v)[g]
    return total / (len(z_qry) * m)


def _attend(weights, P, Q):
    """Both maps, each position times its attention."""
    m = P.shape[1]
    R = np.array([[_cosine(P[:, i], Q[:, j]) for j in range(m)] for i in range(m)])
    return P * _attention(weights, R), Q * _attention(weights, R.T)


def _attention(weights, R):
    h = weights["fusion.0.weight"] @ R.mean(0) + weights["fusion.0.bias"]
    h = (h - weights["fusion.1.running_mean"]) / np.sqrt(weights["fusion.1.running_var"] + 1e-5)
    h = np.maximum(0, h * weights["fusion.1.weight"] + weights["fusion.1.bias"])
    w = weights["fusion.3.weight"] @ h + weights["fusion.3.bias"]
    fused = np.array([np.mean(row * w) for row in R])
    return 1 + np.exp(_log_softmax(fused / TAU))


def _cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def _log_softmax(x):
    return x - x.max() - np.log(np.exp(x - x.max()).sum())
