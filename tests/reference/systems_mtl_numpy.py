"""MTL's classifier in plain NumPy, float64, one task at a time, to be read against the paper.

Gradients of the support's loss are taken by complex steps, f'(x) = Im f(x + ih) / h.
"""

import numpy as np

H = 1e-30


def cross_entropy(theta, z, y):
    """Mean of -log p_iy; theta holds a row (w_k, b_k) per class."""
    total = 0
    for a, label in zip(z, y, strict=True):
        logits = theta[:, :-1] @ a + theta[:, -1]
        total = total + np.log(np.exp(logits).sum()) - logits[label]
    return total / len(y)


def mtl(z_s, y_s, z_q, weight, bias, *, n_steps, learning_rate):
    """Log-probabilities of the queries after steps of gradient descent on the support."""
    theta = np.concatenate([weight, bias[:, None]], axis=1)
    for _ in range(n_steps):
        gradient = np.zeros_like(theta)
        for place in np.ndindex(theta.shape):
            moved = theta.astype(complex)
            moved[place] += 1j * H
            gradient[place] = cross_entropy(moved, z_s, y_s).imag / H
        theta = theta - learning_rate * gradient
    logits = np.array([theta[:, :-1] @ a + theta[:, -1] for a in z_q])
    shifted = logits - logits.max(axis=1)[:, None]
    return shifted - np.log(np.exp(shifted).sum(axis=1))[:, None]
