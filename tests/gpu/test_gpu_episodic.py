import pytest

from infoshot.backbones import make_backbone
from infoshot.core.progress import Progress
from infoshot.distributed import Ranks
from infoshot.images import open_dataset
from infoshot.testing import check_solver
from infoshot.training import base_splits, load_training_images, run_episodes
from infoshot.training.episodic.episodic_config import resolve_episodic_config
from infoshot.training.episodic.trained_head import system_method
from tests.image_folders import make_folders

pytestmark = pytest.mark.gpu
GPU = Ranks(device="cuda:0")
NET = "tests.heads:TinyNet"
SETTINGS = {
    "epochs": 3, "episodes_per_epoch": 12, "tasks_per_step": 4, "n_way": 3, "n_query": 4,
    "val_tasks": 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = make_folders(tmp_path_factory.mktemp("images"), 8, size=(20, 20))
    splits = base_splits(open_dataset("folder", root))
    return load_training_images("folder", *splits, make_backbone(NET).input_spec, n_workers=2)


def _config(system):
    return resolve_episodic_config(system, NET, settings=SETTINGS)


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # we multiply in float32
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("head", ["Linear", "MapHead", "ImageHead"])
def test_losses_equal_those_of_a_cpu_up_to_half_precision(images, tmp_path, head, compiled):
    config = _config(f"tests.heads:{head}")
    here = run_episodes(images, config, tmp_path / "cpu")
    there = run_episodes(images, config, tmp_path / "gpu", ranks=GPU, compile=compiled)
    assert [r.loss for r in there] == pytest.approx([r.loss for r in here], rel=0.05)


def test_interrupted_run_resumes(images, tmp_path):
    class Stop(Progress):
        def say(self, sentence):
            if sentence.startswith("epoch 2/"):
                raise KeyboardInterrupt

    config = _config("protonet")
    with pytest.raises(KeyboardInterrupt):
        run_episodes(images, config, tmp_path / "part", ranks=GPU, progress=Stop())
    part = run_episodes(images, config, tmp_path / "part", ranks=GPU)
    whole = run_episodes(images, config, tmp_path / "whole", ranks=GPU)
    assert [r.loss for r in part] == pytest.approx([r.loss for r in whole], rel=0.02)
    check_solver(system_method(tmp_path / "whole").solver, "cuda")
