"""The kernels against PyTorch steps on a GPU: 10,000 tasks, 5 classes, 5 shots, 15 queries.

python -m perf.kernels [adm] [gd] [--tasks 10000] [--steps-adm 150] [--steps-gd 1000]

Prints milliseconds for all steps (the best of a few rounds, after a launch that builds the kernel),
the speed-up, the largest difference of a probability after ten steps, and the share of labels that
agree after all steps.
"""

import argparse
import time

import torch

from infoshot import TaskBatch, TimAdm, TimGd
from infoshot.solvers import Solver


def make_tasks(n_tasks, n_way=5, n_shot=5, n_query=15, dim=640):
    torch.manual_seed(0)
    centres = torch.randn(n_tasks, n_way, 1, dim, device="cuda")

    def samples(n):
        z = centres + 2 * torch.randn(n_tasks, n_way, n, dim, device="cuda")
        return torch.nn.functional.normalize(z, dim=-1).flatten(1, 2)

    y = torch.arange(n_way, device="cuda").repeat_interleave(n_shot).expand(n_tasks, -1)
    return TaskBatch(samples(n_shot), y.contiguous(), samples(n_query), n_way=n_way)


def kernel(solver, task, state, n_steps):
    return solver.advance(task, state, n_steps)


def plain(solver, task, state, n_steps):
    return Solver.advance(solver, task, state, n_steps)


def probabilities(steps, solver, task, n_steps):
    return solver.log_posterior(task, steps(solver, task, solver.init(task), n_steps)).exp()


def best_ms(steps, solver, task, n_steps, rounds):
    times = []
    for _ in range(rounds):
        state = solver.init(task)
        torch.cuda.synchronize()
        start = time.perf_counter()
        steps(solver, task, state, n_steps)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def compare(name, solver, task, n_steps):
    few = task[:1000]  # also builds the kernel
    after_ten = [probabilities(steps, solver, few, 10) for steps in (kernel, plain)]
    labels = [probabilities(steps, solver, few, n_steps).argmax(-1) for steps in (kernel, plain)]
    ms = best_ms(kernel, solver, task, n_steps, rounds=2)
    plain_ms = best_ms(plain, solver, task, n_steps, rounds=1)
    difference = (after_ten[0] - after_ten[1]).abs().max().item()
    agree = (labels[0] == labels[1]).double().mean().item()
    print(
        f"{name}, {len(task)} tasks, {n_steps} steps: kernel {ms:.1f} ms, PyTorch {plain_ms:.1f} "
        f"ms, {plain_ms / ms:.1f} times faster, difference {difference:.1e}, labels {agree:.3%}"
    )


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("methods", nargs="*", default=["adm", "gd"])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--steps-adm", type=int, default=150)
    parser.add_argument("--steps-gd", type=int, default=1000)
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    task = make_tasks(options.tasks)
    if "adm" in options.methods:
        compare("TIM-ADM", TimAdm(form="gram"), task, options.steps_adm)
    if "gd" in options.methods:
        compare("TIM-GD", TimGd(), task, options.steps_gd)


if __name__ == "__main__":
    main()
