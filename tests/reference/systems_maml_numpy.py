"""First-order MAML in plain NumPy, float64, one task at a time, over a network of one convolution.

Nothing here is shared with the package. Images are [n, 3, h, w]. Parameters are a dictionary:
"conv" [c, 3, 3, 3], "scale" and "shift" [c] of the batch normalisation, "weight" [K, c] and "bias"
[K] of the classifier. Derivatives are complex steps, df/dx = Im f(x + ih) / h, which are exact to
rounding for h = 1e-30: no difference is taken.
"""

import numpy as np


def convolve(x, kernel):
    """o_ncij = sum_abd x_na(i+b-1)(j+d-1) k_cabd, zeros around the image."""
    n, _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.zeros((n, len(kernel), height, width), dtype=complex)
    for i in range(height):
        for j in range(width):
            patch = padded[:, :, i : i + 3, j : j + 3]
            out[:, :, i, j] = np.einsum("nabd,cabd->nc", patch, kernel)
    return out


def normalise(x, scale, shift):
    """Batch normalisation with the statistics of these images."""
    out = np.zeros_like(x)
    for c in range(x.shape[1]):
        mean = x[:, c].mean()
        variance = ((x[:, c] - mean) ** 2).mean()
        out[:, c] = (x[:, c] - mean) / np.sqrt(variance + 1e-5) * scale[c] + shift[c]
    return out


def scores(parameters, x):
    """Convolution, batch normalisation, ReLU, average over the image, linear classifier."""
    maps = normalise(convolve(x, parameters["conv"]), parameters["scale"], parameters["shift"])
    features = np.where(maps.real > 0, maps, 0).mean(axis=(2, 3))
    return features @ parameters["weight"].T + parameters["bias"]


def log_softmax(logits):
    """l_k - log sum_j exp(l_j), row by row."""
    shifted = logits - logits.real.max(axis=1)[:, None]
    return shifted - np.log(np.exp(shifted).sum(axis=1))[:, None]


def cross_entropy(parameters, x, y):
    """Mean of -log p(y_i)."""
    log_p = log_softmax(scores(parameters, x))
    return -np.mean([log_p[i, label] for i, label in enumerate(y)])


def gradient(parameters, x, y):
    """d cross_entropy / d parameters, by one complex step per number."""
    result = {}
    for name, value in parameters.items():
        result[name] = np.zeros(value.shape)
        for place in np.ndindex(value.shape):
            moved = value.astype(complex)
            moved[place] += 1e-30j
            loss = cross_entropy({**parameters, name: moved}, x, y)
            result[name][place] = loss.imag / 1e-30
    return result


def adapt(parameters, x, y, step_size, n_steps):
    """phi <- phi - step_size dL/dphi."""
    for _ in range(n_steps):
        g = gradient(parameters, x, y)
        parameters = {name: value - step_size * g[name] for name, value in parameters.items()}
    return parameters


def maml(parameters, x_sup, y_sup, x_qry, step_size, n_steps):
    """Log-probabilities of the queries after adapting to the support, [N, K]."""
    adapted = adapt(parameters, x_sup, y_sup, step_size, n_steps)
    return log_softmax(scores(adapted, x_qry)).real


def outer_gradient(parameters, tasks, step_size, n_steps):
    """Mean over tasks of the query gradient at the adapted parameters: the first-order one."""
    total = {name: np.zeros(value.shape) for name, value in parameters.items()}
    for x_sup, y_sup, x_qry, y_qry in tasks:
        adapted = adapt(parameters, x_sup, y_sup, step_size, n_steps)
        for name, g in gradient(adapted, x_qry, y_qry).items():
            total[name] += g / len(tasks)
    return total
