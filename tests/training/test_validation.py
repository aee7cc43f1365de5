import pytest
import torch

from infoshot.backbones import make_backbone
from infoshot.core.types import FeatureTable
from infoshot.distributed import SINGLE_PROCESS
from infoshot.tasks.sampler import TaskSampler, TaskSpec
from infoshot.training import make_validation


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return make_backbone("conv4")


def _crops(n_images, size=32):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (n_images, 3, size, size), generator=generator).byte()


def test_accuracy_is_that_of_the_most_similar_example(network):
    labels = torch.arange(6).repeat_interleave(20)
    validation = make_validation(_crops(120), labels, n_tasks=30, seed=7)
    mean, half_width = validation.accuracy(network, SINGLE_PROCESS)
    network.eval()
    spec = network.input_spec
    with torch.no_grad():
        features = network(spec.normalise(validation.crops.float() / 255))
    sampler = TaskSampler(FeatureTable(features, labels), TaskSpec(seed=7))
    right = []
    for task in range(30):
        support, query = (positions[0] for positions in sampler.draw(range(task, task + 1)))
        similarity = torch.cosine_similarity(features[query, None], features[None, support], dim=-1)
        nearest = labels[support][similarity.argmax(1)]
        right.append(float((nearest == labels[query]).double().mean()))
    values = torch.tensor(right, dtype=torch.float64)
    assert mean == pytest.approx(100 * float(values.mean()))
    assert half_width == pytest.approx(100 * 1.96 * float(values.std()) / 30**0.5)


@pytest.mark.parametrize(
    ("sizes", "ways", "queries", "used"),
    [
        ((30,) * 8, 5, 15, 8),
        ((30,) * 3, 3, 15, 3),
        ((4, 9), 2, 3, 2),
        ((16,) * 5, 5, 15, 5),
        ((30,) * 5 + (1, 2, 16), 5, 15, 6),
        ((1, 1, 5, 3), 2, 2, 2),
        ((3, 0, 3, 3), 3, 2, 3),
    ],
)
def test_tasks_shrink_to_the_available_images(network, sizes, ways, queries, used):
    labels = torch.cat([torch.full((n,), k) for k, n in enumerate(sizes)])
    validation = make_validation(_crops(len(labels), 16), labels, n_tasks=5, seed=0)
    spec = validation.spec
    assert (spec.n_way, spec.n_shot, spec.n_query) == (ways, 1, queries)
    assert len(set(validation.labels.tolist()) - {-1}) == used
    mean, _ = validation.accuracy(network, SINGLE_PROCESS)
    assert 0 <= mean <= 100


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 0, 1]])
def test_without_two_classes_of_two_images_there_is_none(labels):
    assert make_validation(_crops(3, 16), torch.tensor(labels), n_tasks=5, seed=0) is None
    assert make_validation(None, None, n_tasks=5, seed=0) is None
