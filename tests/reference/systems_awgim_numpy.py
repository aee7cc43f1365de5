"""AWGIM in plain NumPy, float64, one task at a time, to be read against the paper.

Nothing here is shared with the package. Matrices are a dictionary of arrays; an attention block is
a dictionary with "queries", "keys", "values", "output" [L, L], "scale_1", "shift_1", "scale_2",
"shift_2" [L] and "network" (two matrices). x is [n, d], codes are [n, L], weights [N, K, d].
"""

import numpy as np


def softmax(logits):
    """exp(l_k) / sum_j exp(l_j) of one row."""
    e = np.exp(logits - logits.max())
    return e / e.sum()


def log_softmax(logits):
    """l_k - log sum_j exp(l_j) of one row."""
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


def layer_norm(row, scale, shift):
    """(x - mean) / sqrt(var + 1e-5) scale + shift of one sample."""
    return (row - row.mean()) / np.sqrt(((row - row.mean()) ** 2).mean() + 1e-5) * scale + shift


def mlp(matrices, row):
    """Linear, ReLU, linear."""
    first, last = matrices
    return last @ np.maximum(first @ row, 0)


def attend(block, n_heads, queries, keys, values):
    """One query at a time: heads, residual, normalisation, network, residual, normalisation."""
    width = queries.shape[1] // n_heads
    rows = []
    for row in queries:
        heads = []
        for head in range(n_heads):
            part = slice(head * width, (head + 1) * width)
            q = block["queries"][part] @ row
            k = [block["keys"][part] @ key for key in keys]
            v = [block["values"][part] @ value for value in values]
            a = softmax(np.array([q @ key / np.sqrt(width) for key in k]))
            heads.append(sum(share * value for share, value in zip(a, v, strict=True)))
        hidden = row + block["output"] @ np.concatenate(heads)
        hidden = layer_norm(hidden, block["scale_1"], block["shift_1"])
        out = hidden + mlp(block["network"], hidden)
        rows.append(layer_norm(out, block["scale_2"], block["shift_2"]))
    return np.array(rows)


def class_means(z, y, n_way):
    """Mean of the samples of each class."""
    return np.array([z[y == k].mean(axis=0) for k in range(n_way)])


def generate(matrices, n_heads, x_sup, y_sup, x_qry, n_way, noise=None):
    """Weights [N, K, d], context codes [K, L], query codes [N, L]."""
    dim = x_sup.shape[1]
    support = x_sup @ matrices["context_encoder"].T
    attended = attend(matrices["context"], n_heads, support, support, support)
    context = class_means(attended, y_sup, n_way)
    keys = x_sup @ matrices["attentive_encoder"].T
    attended = attend(matrices["attentive_context"], n_heads, keys, keys, keys)
    values = class_means(attended, y_sup, n_way)[y_sup]
    queries = x_qry @ matrices["attentive_encoder"].T
    codes = attend(matrices["cross"], n_heads, queries, keys, values)
    weights = np.zeros((len(x_qry), n_way, dim))
    for i in range(len(x_qry)):
        for k in range(n_way):
            decoded = mlp(matrices["decoder"], np.concatenate((context[k], codes[i])))
            weights[i, k] = decoded[:dim]
            if noise is not None:
                scale = np.exp(decoded[dim:]) - 1 + np.sqrt(2 / (dim + n_way))
                weights[i, k] += noise[i, k] * np.maximum(scale, 1e-10)
    return weights, context, codes


def awgim(matrices, n_heads, x_sup, y_sup, x_qry, n_way):
    """Log-probabilities of the queries, [N, K]."""
    weights, _, _ = generate(matrices, n_heads, x_sup, y_sup, x_qry, n_way)
    return np.array([log_softmax(weights[i] @ x_qry[i]) for i in range(len(x_qry))])


def loss(matrices, n_heads, task, n_way, weights_of_terms, noise):
    """Cross-entropies of the query and of the support, and the two reconstructions."""
    x_sup, y_sup, x_qry, y_qry = task
    lambda_1, lambda_2, lambda_3 = weights_of_terms
    weights, context, codes = generate(matrices, n_heads, x_sup, y_sup, x_qry, n_way, noise)
    terms = np.zeros(4)
    for i in range(len(x_qry)):
        terms[0] -= log_softmax(weights[i] @ x_qry[i])[y_qry[i]]
        terms[1] -= np.mean(
            [log_softmax(weights[i] @ x)[y] for x, y in zip(x_sup, y_sup, strict=True)]
        )
        for k in range(n_way):
            read = mlp(matrices["read_context"], weights[i, k])
            terms[2] += ((read - context[k]) ** 2).sum() / n_way
            read = mlp(matrices["read_query"], weights[i, k])
            terms[3] += ((read - codes[i]) ** 2).sum() / n_way
    return terms @ (1.0, lambda_1, lambda_2, lambda_3) / len(x_qry)
