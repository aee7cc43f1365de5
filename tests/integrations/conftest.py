import pytest
import torch

from infoshot import label
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import save_checkpoint
from tests.image_folders import make_folders

CLASSES = ("cat", "dog", "eel")


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """Images of three classes, ``all/cat/0.png`` to ``all/eel/11.png``, and an encoder."""
    folder = tmp_path_factory.mktemp("integrations")
    make_folders(folder, 12, size=(40, 40), splits={"all": CLASSES})
    torch.manual_seed(0)
    save_checkpoint(folder / "weights", "conv4", make_backbone("conv4").state_dict())
    return folder


@pytest.fixture(autouse=True)
def _own_cache(images, monkeypatch):
    monkeypatch.setenv("INFOSHOT_CACHE", str(images / "cache"))


@pytest.fixture
def run(images, tmp_path):
    """A run with two examples per class and eight photos per class; two images are in neither."""
    examples, photos = tmp_path / "examples.csv", tmp_path / "photos.csv"
    files = {name: [images / "all" / name / f"{n}.png" for n in range(10)] for name in CLASSES}
    lines = [f"{file},{name}" for name, some in files.items() for file in some[:2]]
    examples.write_text("\n".join(["path,label", *lines]))
    photos.write_text("\n".join(["path", *(str(f) for some in files.values() for f in some[2:])]))
    label(examples, photos, tmp_path / "run", backbone=images / "weights")
    return tmp_path / "run"
