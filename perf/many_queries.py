"""TIM-auto on one task with many queries: neighbours in cells against all pairs, on one core.

python -m perf.many_queries [--rows 20000 100000 1000000] [--all-pairs-up-to 100000] [--dim 128]

Prints for every size the CPU seconds of the solve, the accuracy, and how many labels are those of
the search over all pairs; then the same for the features in the package, with fewer and fewer
candidates. Features of the first table: 10 classes of unequal size with 200 clusters each. The
largest memory of the process so far is at the end of each line.
"""

import argparse
import resource
import time
from unittest.mock import patch

import torch

from infoshot import TimAuto, solve
from infoshot.core.types import TaskBatch
from infoshot.features import prepare, read_features
from infoshot.features.files import default_features_path
from infoshot.solvers import cells, neighbours

SHARES = torch.tensor([20, 18, 15, 12, 10, 8, 6, 5, 3, 3]) / 100
CLUSTERS, SHOTS = 200, 5


def made_task(n_queries, dim=128):
    """Unit vectors around clusters of classes, and the labels of the queries."""
    generator = torch.Generator().manual_seed(0)
    n_way = len(SHARES)
    centres = torch.randn(n_way, dim, generator=generator)
    clusters = torch.randn(n_way * CLUSTERS, dim, generator=generator)

    def draw(labels):
        cluster = labels * CLUSTERS + torch.randint(CLUSTERS, (len(labels),), generator=generator)
        z = centres[labels] + 2 * clusters[cluster]
        z += 2 * torch.randn(len(labels), dim, generator=generator)
        return torch.nn.functional.normalize(z, dim=1).unsqueeze(0)

    y_sup = torch.arange(n_way).repeat_interleave(SHOTS)
    z_sup = draw(y_sup)
    y_qry = torch.multinomial(SHARES, n_queries, replacement=True, generator=generator)
    return TaskBatch(z_sup, y_sup.unsqueeze(0), draw(y_qry), n_way), y_qry


def real_task(n_way=20):
    """All features in the package as one task, and the labels of the queries."""
    table = read_features(default_features_path())
    z = prepare(table, "l2")
    rows = [(table.labels == label).nonzero().flatten() for label in range(n_way)]
    sup, qry = torch.cat([r[:SHOTS] for r in rows]), torch.cat([r[SHOTS:] for r in rows])
    y_sup = torch.arange(n_way).repeat_interleave(SHOTS)
    task = TaskBatch(z[sup].unsqueeze(0), y_sup.unsqueeze(0), z[qry].unsqueeze(0), n_way)
    return task, table.labels[qry]


def measure(task, most_searched, n_candidates=8192):
    """CPU seconds and labels with a search in cells above this many queries."""
    with (
        patch.object(neighbours, "_MOST_SEARCHED", most_searched),
        patch.object(neighbours, "_CANDIDATES", n_candidates),
        patch.object(cells, "CELL_SIZE", max(8, n_candidates // 16)),
    ):
        start = time.process_time()
        solution = solve(TimAuto(), task, n_threads=1)
    return time.process_time() - start, solution.probabilities[0].argmax(1)


def line(name, seconds, labels, truth, reference):
    same = f"{100 * (labels == reference).double().mean():.1f} %" if reference is not None else "-"
    accuracy = 100 * (labels == truth).double().mean()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kilobytes on Linux
    numbers = f"accuracy {accuracy:.2f}   same labels {same}   {memory:.1f} GB"
    print(f"{name:34} {seconds:8.1f} s   {numbers}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 100_000, 400_000, 10**6])
    parser.add_argument("--all-pairs-up-to", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=128)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for n_rows in options.rows:
        (task, truth), reference = made_task(n_rows, options.dim), None
        if n_rows <= options.all_pairs_up_to:
            seconds, reference = measure(task, most_searched=n_rows)
            line(f"{n_rows:,} rows, all pairs", seconds, reference, truth, reference)
        line(f"{n_rows:,} rows, cells", *measure(task, most_searched=0), truth, reference)
    (task, truth), reference = real_task(), None
    for share in (1, 2, 6, 24, 100):
        n_queries = task.n_qry
        seconds, labels = measure(task, n_queries if share == 1 else 0, n_queries // share)
        reference = labels if reference is None else reference
        line(f"mini-ImageNet, 1/{share} as candidates", seconds, labels, truth, reference)


if __name__ == "__main__":
    main()
