import pytest
import torch

from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import save_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    """The folder of a checkpoint with random weights."""
    torch.manual_seed(0)
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, "conv4", make_backbone("conv4").eval().state_dict())
    return folder
