"""The graph network for one task in loops; weights by the names of the head's parameters."""

import numpy as np


def classify(weights, z_sup, y_sup, z_qry, n_way):
    """Log-probabilities, shape (query, class), of vectors (n, dim)."""
    rows = []
    for z in z_qry:
        nodes = []
        for sample, y in [*zip(z_sup, y_sup, strict=True), (z, None)]:
            label = np.zeros(n_way)
            if y is not None:
                label[y] = 1
            embedded = _norm(weights, "embedding.1", _linear(weights, "embedding.0", sample))
            nodes.append(np.concatenate((embedded, label)))
        for layer in range(2):
            mixed = _append_neighbours(weights, f"edges.{layer}", nodes)
            for i, x in enumerate(mixed):
                new = _linear(weights, f"updates.{layer}.0", x)
                new = _leaky(_norm(weights, f"updates.{layer}.1", new))
                nodes[i] = np.concatenate((nodes[i], new))
        mixed = _append_neighbours(weights, "edges.2", nodes)
        scores = _linear(weights, "output", mixed[-1])
        rows.append(scores - scores.max() - np.log(np.exp(scores - scores.max()).sum()))
    return np.array(rows)


def _append_neighbours(weights, edges, nodes):
    out = []
    for i, x in enumerate(nodes):
        others = [j for j in range(len(nodes)) if j != i]
        scores = np.array([_edge(weights, edges, np.abs(x - nodes[j])) for j in others])
        A = np.exp(scores - scores.max())
        A = A / A.sum()
        out.append(np.concatenate((x, sum(a * nodes[j] for a, j in zip(A, others, strict=True)))))
    return out


def _edge(weights, name, x):
    for layer in (0, 3, 6, 9):
        x = _leaky(_norm(weights, f"{name}.{layer + 1}", _linear(weights, f"{name}.{layer}", x)))
    return _linear(weights, f"{name}.12", x)[0]


def _linear(weights, name, x):
    return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]


def _norm(weights, name, x):
    x = (x - weights[f"{name}.running_mean"]) / np.sqrt(weights[f"{name}.running_var"] + 1e-5)
    return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _leaky(x):
    return np.where(x > 0, x, 0.01 * x)
