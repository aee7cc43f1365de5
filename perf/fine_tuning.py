"""Ways to fine-tune a whole network on a GPU faster: 5-way tasks, 15 queries, random images.

python -m perf.fine_tuning [--backbone resnet18] [--shots 5] [--tasks 12] [--variants ...]

For each variant: milliseconds per task after the first (which builds kernels and the graph), the
speed-up, and the largest difference of a probability from the first variant. The whole run takes
about a minute on an H200; `compiled` builds for up to half of it.
"""

import argparse
import threading
import time
import warnings

import torch

from infoshot.backbones import make_backbone
from infoshot.reproduction.adaptation import FineTuner
from infoshot.reproduction.ent_min import BaseLogits, EntMin
from infoshot.reproduction.finetune import FineTuning
from infoshot.tasks.image_tasks import ImageTask

N_BASE = 64


def make_tasks(n_tasks, n_shot, n_way=5, n_query=15, size=84):
    generator = torch.Generator("cuda").manual_seed(0)
    y_sup = torch.arange(n_way).repeat_interleave(n_shot)

    def images(n):
        shape = (n, 3, size, size)
        pixels = torch.randint(0, 256, shape, generator=generator, device="cuda")
        return pixels.to(torch.uint8)

    return [
        ImageTask(images(n_way * n_shot), y_sup, images(n_way * n_query), n_way)
        for _ in range(n_tasks)
    ]


def in_turn(fine_tuner, tasks):
    return [fine_tuner(task) for task in tasks]


def compiled(fine_tuner, tasks):
    """Compile the forward pass; the graph of a step then holds fused kernels."""
    network = fine_tuner._network
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler, about itself
        if not hasattr(network.forward, "_torchdynamo_orig_callable"):
            network.forward = torch.compile(network.forward)
        return in_turn(fine_tuner, tasks)


def two_streams(make, tasks):
    """Fine-tune two tasks at a time, each on a stream and a copy of the network."""
    results = {}

    def work(fine_tuner, start):
        with torch.cuda.stream(torch.cuda.Stream()):
            for number in range(start, len(tasks), 2):
                results[number] = fine_tuner(tasks[number])

    pair = [make(), make()]
    for fine_tuner in pair:  # captures must not overlap
        with torch.cuda.stream(torch.cuda.Stream()):
            fine_tuner(tasks[0])
    torch.cuda.synchronize()
    start = time.perf_counter()
    threads = [threading.Thread(target=work, args=(pair[i], i)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return [results[number] for number in range(len(tasks))], seconds / len(tasks)


def timed(run, make, tasks):
    fine_tuner = make()
    first = run(fine_tuner, tasks[:1])
    torch.cuda.synchronize()
    start = time.perf_counter()
    rest = run(fine_tuner, tasks[1:])
    torch.cuda.synchronize()
    return first + rest, (time.perf_counter() - start) / (len(tasks) - 1)


VARIANTS = {
    "as shipped": in_turn,
    "two streams": None,
    "compiled": compiled,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    backbone = make_backbone(arguments.backbone).cuda()
    head = torch.nn.Linear(backbone.feature_dim, N_BASE).state_dict()
    tasks = make_tasks(arguments.tasks, arguments.shots)
    methods = {
        "TIM-GD {phi+W}": lambda: FineTuner(backbone, FineTuning(), amp=True),
        "Ent-min {phi+W}": lambda: FineTuner(BaseLogits(backbone, head), EntMin(), amp=True),
    }
    for method, make in methods.items():
        print(f"{method}, {arguments.backbone}, {arguments.shots}-shot")
        reference = None
        for name in arguments.variants:
            run = VARIANTS[name]
            found = two_streams(make, tasks) if run is None else timed(run, make, tasks)
            probabilities, seconds = torch.stack(found[0]), found[1]
            reference = reference or (probabilities, seconds)
            difference = float((probabilities - reference[0]).abs().max())
            print(
                f"  {name:12s} {1000 * seconds:8.1f} ms per task   {reference[1] / seconds:5.2f} x"
                f"   largest difference {difference:.4f}"
            )


if __name__ == "__main__":
    main()
