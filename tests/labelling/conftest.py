import pytest
import torch

from infoshot import labelling
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import save_checkpoint
from tests.image_folders import make_folders


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Three classes with seven examples each, 60 photos named by their class, and an encoder."""
    folder = tmp_path_factory.mktemp("label")
    make_folders(folder, 27, size=(40, 40), splits={"all": ("cat", "dog", "eel")})
    for name in ("cat", "dog", "eel"):
        for number in range(27):
            photo = folder / "all" / name / f"{number}.png"
            kept = folder / "examples" / name / photo.name
            target = kept if number < 7 else folder / "photos" / f"{name}{number}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            photo.rename(target)
    torch.manual_seed(0)
    save_checkpoint(folder / "weights", "conv4", make_backbone("conv4").state_dict())
    return folder


@pytest.fixture(autouse=True)
def _own_cache(made, monkeypatch):
    monkeypatch.setenv("INFOSHOT_CACHE", str(made / "cache"))


@pytest.fixture
def label(made):
    """Label the photos above, or others."""

    def label(out, **more):
        where = {"examples": made / "examples", "photos": made / "photos", **more}
        return labelling.label(out=out, **{"backbone": made / "weights", **where})

    return label


@pytest.fixture
def no_encoding(monkeypatch):
    """Fail if an image is encoded."""

    def fail(*_, **__):
        pytest.fail("an image was encoded")

    monkeypatch.setattr("infoshot.features.extract.encode_batches", fail)
