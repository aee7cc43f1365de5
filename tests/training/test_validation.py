import pytest
import torch

from infoshot.backbones import make_backbone
from infoshot.data.tasks import TaskSampler, TaskSpec
from infoshot.data.transforms import network_input
from infoshot.distributed import ALONE
from infoshot.training.validation import Validation
from infoshot.types import FeatureTable


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return make_backbone("conv4")


def _crops(n_images, size=32):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (n_images, 3, size, size), generator=generator).byte()


def test_accuracy_is_that_of_the_most_similar_example(network):
    labels = torch.arange(6).repeat_interleave(20)
    validation = Validation(_crops(120), labels, n_tasks=30, seed=7)
    mean, half_width = validation.accuracy(network, ALONE)
    network.eval()
    spec = network.input_spec
    with torch.no_grad():
        features = network(network_input(validation.crops.float() / 255, spec.mean, spec.std))
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
    ("sizes", "ways", "queries"),
    [((30,) * 8, 5, 15), ((30,) * 3, 3, 15), ((4, 9), 2, 3), ((16,) * 5, 5, 15)],
)
def test_tasks_shrink_to_what_is_there(network, sizes, ways, queries):
    labels = torch.cat([torch.full((n,), k) for k, n in enumerate(sizes)])
    validation = Validation(_crops(len(labels), 16), labels, n_tasks=5, seed=0)
    assert validation.possible()
    spec = validation.spec()
    assert (spec.n_way, spec.n_shot, spec.n_query) == (ways, 1, queries)
    mean, _ = validation.accuracy(network, ALONE)
    assert 0 <= mean <= 100


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 0, 1]])
def test_without_two_classes_of_two_images_there_are_no_tasks(labels):
    labels = torch.tensor(labels)
    assert not Validation(_crops(3, 16), labels, n_tasks=5, seed=0).possible()
