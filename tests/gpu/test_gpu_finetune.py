"""Fine-tuning as a CUDA graph gives the numbers of the CPU; run there with ``-m gpu``."""

import copy

import pytest
import torch

from infoshot.backbones import make_backbone
from infoshot.images import open_dataset
from infoshot.images.in_memory import load_crops
from infoshot.reproduction.adaptation import FineTuner
from infoshot.reproduction.ent_min import BaseLogits, EntMin
from infoshot.reproduction.finetune import FineTuning
from infoshot.tasks import TaskSpec
from infoshot.tasks.image_tasks import image_tasks
from tests.image_folders import make_folders

pytestmark = pytest.mark.gpu

SPECS = (TaskSpec(n_way=3, n_shot=2, n_query=4), TaskSpec(n_way=2, n_shot=1, n_query=5))
SETTINGS = {
    "CE": FineTuning(marginal_entropy_weight=0, conditional_entropy_weight=0),
    "full": FineTuning(),
    "large steps": FineTuning(n_steps=5, learning_rate=1e-2),
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Tasks of two shapes, taking turns."""
    root = make_folders(tmp_path_factory.mktemp("images"), n_images=7, size=(30, 34))
    split = open_dataset("folder", root).split("test")
    crops = load_crops(split.records, 24, 20, n_workers=1)
    drawn = [[task for task, _ in image_tasks(crops, split, spec, range(3))] for spec in SPECS]
    return [*drawn[0], *drawn[1], drawn[0][0]]


@pytest.mark.parametrize("name", SETTINGS)
def test_gpu_equals_cpu(name, tasks):
    torch.manual_seed(0)
    network = make_backbone("conv4").double()
    here = FineTuner(network, SETTINGS[name])
    there = FineTuner(copy.deepcopy(network).cuda(), SETTINGS[name])
    for task in tasks:
        torch.testing.assert_close(there(task), here(task), atol=1e-6, rtol=0)


def test_entropy_minimisation_on_a_gpu_equals_that_on_a_cpu(tasks):
    torch.manual_seed(0)
    backbone = make_backbone("conv4").double()
    head = torch.nn.Linear(backbone.feature_dim, 9).double().state_dict()
    setting = EntMin(n_steps=5, learning_rate=1e-3)
    here = FineTuner(BaseLogits(backbone, head), setting)
    there = FineTuner(BaseLogits(copy.deepcopy(backbone).cuda(), head), setting)
    for task in tasks:
        torch.testing.assert_close(there(task), here(task), atol=1e-6, rtol=0)


def test_bfloat16_is_close_and_steps_are_seen(tasks):
    torch.manual_seed(0)
    network, seen = make_backbone("conv4"), []
    expected = FineTuner(network, FineTuning())(tasks[0])
    rough = FineTuner(copy.deepcopy(network).cuda(), FineTuning(), amp=True)
    p = rough(tasks[0], on_step=lambda predict: seen.append(predict()))
    assert (p - expected).abs().max() < 0.1
    assert len(seen) == 26
    assert not torch.equal(seen[0], seen[1])
