"""Compare a solver with the reference implementation of the paper, task by task."""

import dataclasses

import numpy as np
import torch

from infoshot import solve


def reference(algorithm, tasks, **settings):
    """Probabilities and weights of every task by one of the paper's algorithms."""
    results = [
        algorithm(z_s.numpy(), y.numpy(), z_q.numpy(), tasks.n_way, **settings)
        for z_s, y, z_q in zip(tasks.z_sup.double(), tasks.y_sup, tasks.z_qry.double(), strict=True)
    ]
    return np.stack([p for p, _ in results]), np.stack([w for _, w in results])


def as_dtype(tasks, dtype):
    return dataclasses.replace(tasks, z_sup=tasks.z_sup.to(dtype), z_qry=tasks.z_qry.to(dtype))


def assert_parity(solver, tasks, algorithm, tolerances=((torch.float64, 1e-9),), **settings):
    """Solver and algorithm agree in every probability, and in float64 in the weights.

    In float32 the weights may differ where they do not matter: once a task is solved, Adam turns
    gradients that are only rounding into steps.
    """
    expected_p, expected_w = reference(algorithm, tasks, **settings)
    for dtype, tolerance in tolerances:
        solution = solve(solver, as_dtype(tasks, dtype))
        np.testing.assert_allclose(solution.probabilities.double(), expected_p, atol=tolerance)
        if dtype == torch.float64:
            np.testing.assert_allclose(solution.prototypes, expected_w, atol=1e-8)


BOTH = ((torch.float64, 1e-9), (torch.float32, 1e-4))
