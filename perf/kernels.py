"""The kernels against plain PyTorch steps, on a GPU: 10,000 tasks, 5 classes, 5 shots, 15 queries.

python -m perf.kernels [adm] [gd] [--tasks 10000] [--steps-adm 150] [--steps-gd 1000]

For every way of working: milliseconds for all steps (the best of a few rounds, after a launch that
builds the kernel), how many times faster than plain, the largest difference of a probability after
ten steps, and the share of labels that agree after all steps. A way that does not launch says why.
"""

import argparse
import time

import torch

from infoshot import TaskBatch, TimAdm, TimGd
from infoshot.solvers import Solver

ADM = [
    {"arithmetic": arithmetic, "num_warps": num_warps}
    for arithmetic in ("fma", "tf32x3", "ieee")
    for num_warps in (2, 4, 8)
]
GD = [
    {"arithmetic": arithmetic, "num_warps": num_warps, "block": block, "num_stages": stages}
    for arithmetic, num_warps, block, stages in [
        ("tf32x3", 2, 32, 1),
        ("tf32x3", 4, 32, 1),
        ("tf32x3", 4, 64, 1),
        ("tf32x3", 4, 64, 3),
        ("tf32x3", 8, 64, 1),
        ("tf32x3", 8, 128, 1),
        ("tf32x3", 8, 128, 2),
        ("ieee", 4, 32, 1),
        ("ieee", 8, 64, 1),
    ]
]


def make_tasks(n_tasks, n_way=5, n_shot=5, n_query=15, dim=640):
    torch.manual_seed(0)
    centres = torch.randn(n_tasks, n_way, 1, dim, device="cuda")

    def samples(n):
        z = centres + 2 * torch.randn(n_tasks, n_way, n, dim, device="cuda")
        return torch.nn.functional.normalize(z, dim=-1).flatten(1, 2)

    y = torch.arange(n_way, device="cuda").repeat_interleave(n_shot).expand(n_tasks, -1)
    return TaskBatch(samples(n_shot), y.contiguous(), samples(n_query), n_way=n_way)


def kernel(solver, task, state, n_steps, how):
    return solver.launch(task, state, n_steps, **how)


def plain(solver, task, state, n_steps, how):
    return Solver.advance(solver, task, state, n_steps)


def probabilities(steps, solver, task, n_steps, how):
    return solver.log_posterior(task, steps(solver, task, solver.init(task), n_steps, how)).exp()


def best_ms(steps, solver, task, n_steps, how, rounds):
    times = []
    for _ in range(rounds):
        state = solver.init(task)
        torch.cuda.synchronize()
        start = time.perf_counter()
        steps(solver, task, state, n_steps, how)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def compare(name, solver, task, n_steps, ways):
    few = task[:1000]
    after_ten = probabilities(plain, solver, few, 10, {})
    labels = probabilities(plain, solver, few, n_steps, {}).argmax(-1)
    plain_ms = best_ms(plain, solver, task, n_steps, {}, rounds=1)  # the lines above warmed it up
    print(f"\n{name}, {len(task)} tasks, {n_steps} steps: plain {plain_ms:.1f} ms", flush=True)
    print(f"{'how':58}{'ms':>9}{'faster':>8}{'difference':>12}{'labels':>9}")
    for how in ways:
        text = ", ".join(f"{key} {value}" for key, value in how.items())
        try:
            difference = probabilities(kernel, solver, few, 10, how).sub_(after_ten).abs().max()
            agree = (probabilities(kernel, solver, few, n_steps, how).argmax(-1) == labels).double()
            ms = best_ms(kernel, solver, task, n_steps, how, rounds=2)
        except Exception as error:  # the table goes on without this way
            print(f"{text:58}  {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        print(
            f"{text:58}{ms:9.1f}{plain_ms / ms:8.1f}{difference.item():12.1e}"
            f"{agree.mean().item():9.3%}",
            flush=True,
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
        compare("TIM-ADM", TimAdm(form="gram"), task, options.steps_adm, ADM)
    if "gd" in options.methods:
        compare("TIM-GD", TimGd(), task, options.steps_gd, GD)


if __name__ == "__main__":
    main()
