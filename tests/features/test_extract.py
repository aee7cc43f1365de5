import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import Encoder, make_backbone
from infoshot.backbones.checkpoints import save_checkpoint
from infoshot.features import read_features
from infoshot.features.api import extract
from infoshot.features.cache import FeatureCache
from infoshot.features.extract import Extraction, encoder_provenance, split_provenance
from infoshot.images import open_dataset
from infoshot.images.decoding import DECODING, resize_and_crop
from tests.encoders import extract_features


@pytest.fixture
def root(tmp_path):
    """Two train and two test classes of five images of different sizes."""
    generator = np.random.default_rng(0)
    for split, classes in (("train", "ab"), ("test", "cd")):
        for class_name in classes:
            for number in range(5):
                size = (90 + 7 * number, 100, 3)
                path = tmp_path / "data" / split / class_name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(generator.integers(0, 256, size, dtype=np.uint8)).save(path)
    return tmp_path / "data"


@pytest.fixture
def encoder(tmp_path):
    torch.manual_seed(0)
    backbone = make_backbone("conv4").eval()
    digest = save_checkpoint(tmp_path / "checkpoint", "conv4", backbone.state_dict())
    return Encoder("conv4", backbone, digest)


@pytest.fixture
def test_split(root):
    return open_dataset("folder", root).split("test")


def count_images(encoder):
    """List with the size of every batch that the network gets from now on."""
    sizes = []
    encoder.backbone.register_forward_pre_hook(lambda _, x: sizes.append(len(x[0])))
    return sizes


def test_features_are_those_of_the_published_crop(test_split, encoder):
    features = extract_features(test_split, encoder, Extraction(batch_size=4))
    assert features.shape == (10, 64)
    for i in (0, 3, 9):
        pixels = resize_and_crop(test_split.records[i].location.pixels(), 96, 84)
        x = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            expected = encoder.backbone(encoder.backbone.input_spec.normalise(x))
        torch.testing.assert_close(features[i : i + 1], expected, atol=1e-5, rtol=1e-5)


def test_features_do_not_depend_on_their_neighbours(test_split, encoder):
    split = test_split
    whole = extract_features(split, encoder, Extraction(batch_size=4))
    part = type(split)("test", split.records[4:7], split.labels[4:7], split.class_names)
    assert torch.equal(extract_features(part, encoder, Extraction(batch_size=4)), whole[4:7])


@pytest.mark.usefixtures("by_pytorch")
def test_features_do_not_depend_on_the_number_of_cores(test_split):
    """Every batch runs on one core, so that the rounding is the same too."""
    encoder = Encoder("resnet18", make_backbone("resnet18").eval(), "0" * 64)
    split = test_split
    few = type(split)("test", split.records[:3], split.labels[:3], split.class_names)
    results, threads = [], []
    encoder.backbone.register_forward_pre_hook(lambda *_: threads.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    for n_threads in (1, 2, 3):
        torch.set_num_threads(n_threads)
        how = Extraction(batch_size=4)
        results.append([extract_features(part, encoder, how) for part in (split, few)])
        assert torch.get_num_threads() == n_threads
    torch.set_num_threads(before)
    for whole, part in results:
        assert torch.equal(whole, results[0][0])
        assert torch.equal(part, whole[:3])
    assert set(threads) == {1}


@pytest.mark.usefixtures("by_pytorch")
def test_all_batches_have_the_same_size(test_split, encoder):
    """Kernels, and so the rounding, may depend on the size of the batch."""
    sizes = count_images(encoder)
    extract_features(test_split, encoder, Extraction(batch_size=4))
    assert sizes == [4, 4, 4]


def test_broken_image_is_named(root, encoder):
    (root / "test" / "d" / "2.png").write_bytes(b"")
    split = open_dataset("folder", root).split("test")
    with pytest.raises(DataError, match=r"2\.png: the file is empty"):
        extract_features(split, encoder, Extraction(batch_size=2))


def test_provenance_changes_with_everything_that_features_depend_on(root, encoder):
    def record(how=Extraction(), name="folder", of=encoder):  # noqa: B008
        return split_provenance(name, open_dataset("folder", root).split("test"), of, how)

    first = record()
    assert record() == first
    assert first["transform"] == f"resize 96, crop 84, bilinear, {DECODING}"
    assert record(Extraction(batch_size=7)) == first
    assert record(Extraction(crop=80)) != first
    assert record(Extraction(resize=100)) != first
    assert record(name="cub") != first
    assert record(of=Encoder("conv4", encoder.backbone, "0" * 64)) != first
    path = root / "test" / "c" / "0.png"
    Image.fromarray(np.zeros((90, 100, 3), dtype=np.uint8)).save(path)
    assert record() != first


def test_cache_folder_changes_with_everything_but_the_image(encoder, tmp_path, monkeypatch):
    def folder(how=Extraction(), of=encoder):  # noqa: B008
        return FeatureCache(tmp_path, encoder_provenance(of, how)).folder

    first = folder()
    assert folder() == first
    assert folder(Extraction(batch_size=7)) == first
    others = [
        folder(Extraction(crop=80)),
        folder(Extraction(resize=100)),
        folder(of=Encoder("conv4", encoder.backbone, "0" * 64)),
        folder(of=Encoder("resnet18", encoder.backbone, encoder.digest)),
    ]
    monkeypatch.setattr("infoshot.features.extract.DECODING", "all pixels")
    others.append(folder())
    monkeypatch.setattr("infoshot.features.extract.__version__", "0.0")
    others.append(folder())
    assert len({first, *others}) == 7


@pytest.mark.usefixtures("by_pytorch")
def test_cache_is_used_and_damage_is_noticed(root, encoder, tmp_path):
    undisturbed = extract("folder", root, backbone=encoder)
    sizes, cache = count_images(encoder), tmp_path / "cache"
    first = extract("folder", root, backbone=encoder, cache=cache)
    assert sum(sizes) == 12  # 10 images, and 2 black ones that fill the last batch
    second = extract("folder", root, backbone=encoder, cache=cache)
    assert sum(sizes) == 12
    [part] = cache.glob("*/part-*.safetensors")
    content = part.read_bytes()
    part.write_bytes(content[:-100])
    third = extract("folder", root, backbone=encoder, cache=cache)
    assert sum(sizes) == 24
    assert [path.read_bytes() for path in cache.glob("*/*")] == [content]
    for table in (first, second, third):
        assert torch.equal(table.features, undisturbed.features)
        assert table.class_names == ("c", "d")
        assert table.labels.tolist() == [0] * 5 + [1] * 5


@pytest.mark.usefixtures("by_pytorch")
def test_an_image_that_changed_is_encoded_again_and_a_renamed_one_is_not(root, encoder, tmp_path):
    first = extract("folder", root, backbone=encoder, cache=tmp_path / "cache")
    sizes = count_images(encoder)
    (root / "test" / "c" / "0.png").rename(root / "test" / "c" / "9.png")
    moved = extract("folder", root, backbone=encoder, cache=tmp_path / "cache")
    assert not sizes
    assert torch.equal(moved.features[[4, 0, 1, 2, 3]], first.features[:5])
    Image.fromarray(np.zeros((90, 100, 3), dtype=np.uint8)).save(root / "test" / "c" / "1.png")
    changed = extract("folder", root, backbone=encoder, cache=tmp_path / "cache")
    assert sum(sizes) == 4  # one image, and 3 black ones that fill the batch
    assert not torch.equal(changed.features[0], moved.features[0])
    assert torch.equal(changed.features[1:], moved.features[1:])


def test_train_and_test_images_share_a_cache(root, encoder, tmp_path):
    table = extract("folder", root, backbone=encoder, base_mean=True, cache=tmp_path / "cache")
    train = extract_features(open_dataset("folder", root).split("train"), encoder, Extraction())
    torch.testing.assert_close(table.base_mean, train.mean(0))
    sizes = count_images(encoder)
    extract("folder", root, backbone=encoder, split="train", cache=tmp_path / "cache")
    assert not sizes


WRONG_EXTRACTIONS = [
    (Extraction(crop=200), "crop must be at most resize; got 200 and 96"),
    (Extraction(crop=0), "crop must be a whole number of at least 16; got 0"),
    (Extraction(resize=100_000), "resize must be at most 4096; got 100000"),
    (Extraction(batch_size=0), "batch_size must be a whole number of at least 1"),
    (Extraction(device="tpu"), "device 'tpu' is not available"),
]


@pytest.mark.parametrize(("how", "message"), WRONG_EXTRACTIONS)
def test_wrong_sizes_and_devices_are_refused(how, message, encoder):
    with pytest.raises(InvalidArgumentError, match=message):
        how.sizes(encoder)


def test_table_and_file_are_the_same(root, encoder, tmp_path):
    out = tmp_path / "f.safetensors"
    table = extract(
        "folder", root, checkpoint=tmp_path / "checkpoint", out=out, base_mean=True, dtype="float32"
    )
    stored = read_features(out)
    assert torch.equal(stored.features, table.features)
    assert torch.equal(stored.base_mean, table.base_mean)
    assert stored.class_names == ("c", "d")
    assert stored.labels.tolist() == [0] * 5 + [1] * 5
    assert stored.provenance == table.provenance
    assert stored.provenance["weights_sha256"] == encoder.digest


def test_pretrained_backbone_needs_no_checkpoint(root):
    table = extract("folder", root, backbone="efficientnet-lite0")
    assert table.features.shape == (10, 1280)
    assert table.features.dtype == torch.float16
    assert table.provenance["transform"] == f"resize 256, crop 224, bilinear, {DECODING}"


def test_any_module_is_a_backbone(root):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())
    table = extract("folder", root, backbone=network, dtype="float32")
    assert table.features.shape == (10, 12)
    assert table.provenance["backbone"] == "torch.nn.modules.container:Sequential"


def test_progress_counts_images(root, encoder, tmp_path):
    seen = []
    for _ in range(2):
        extract(
            "folder", root, backbone=encoder, base_mean=True, batch_size=4,
            cache=tmp_path / "cache", progress=lambda *event: seen.append(event),
        )  # fmt: skip
    # Nothing is counted if all images of a split are cached.
    assert seen == [
        (f"extracting {split}", n, 10) for split in ("test", "train") for n in (0, 4, 8, 10)
    ]
    seen.clear()
    extract("folder", root, backbone=encoder, batch_size=4, progress=lambda *e: seen.append(e))
    assert [done for _, done, _ in seen] == [0, 4, 8, 10]


WRONG = [
    ({}, "an encoder is needed: pass checkpoint=FOLDER, or backbone=NAME of an encoder"),
    ({"backbone": "resnet18"}, "'resnet18' has no pretrained weights"),
    ({"checkpoint": "nowhere"}, "nowhere: this checkpoint folder does not exist"),
    ({"checkpoint": __file__}, "does not record its network; pass backbone=NAME as well"),
    ({"backbone": "efficientnet-lite0", "split": "val"}, "the split 'val'"),
    ({"backbone": "efficientnet-lite0", "dtype": "int8"}, "Unknown dtype 'int8'."),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_arguments_get_one_sentence(arguments, message, root, tmp_path):
    with pytest.raises((InvalidArgumentError, DataError)) as caught:
        extract("folder", root, out=tmp_path / "f", **arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "f").exists()


EXTRACT = """
import sys
from infoshot.features.api import extract

root, checkpoint, cache, out = sys.argv[1:]
extract("folder", root, checkpoint=checkpoint, cache=cache, out=out, device="cpu")
"""


def test_two_processes_may_fill_one_cache_at_once(root, encoder, tmp_path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", EXTRACT, root, tmp_path / "checkpoint", tmp_path / "cache",
             tmp_path / name],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    # Both wrote the same part.
    assert len(list((tmp_path / "cache").glob("*/part-*.safetensors"))) == 1
    sizes = count_images(encoder)
    table = extract("folder", root, backbone=encoder, cache=tmp_path / "cache")
    assert not sizes
    assert torch.equal(table.features, read_features(tmp_path / "one").features)


def test_features_that_are_not_finite_are_refused(root, encoder, tmp_path):
    weights, out = encoder.backbone.state_dict(), tmp_path / "f"
    weights["blocks.3.1.weight"] *= 1e7
    save_checkpoint(tmp_path / "bad", "conv4", weights)
    with pytest.raises(DataError, match=r"too large for float16; pass dtype=float32"):
        extract("folder", root, checkpoint=tmp_path / "bad", out=out)
    weights["blocks.3.1.running_var"] *= float("nan")
    save_checkpoint(tmp_path / "bad", "conv4", weights)
    with pytest.raises(DataError, match="weights of this conv4 give features that are not finite"):
        extract("folder", root, checkpoint=tmp_path / "bad", out=out, dtype="float32")
    assert not out.exists()
