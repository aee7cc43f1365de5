"""An interrupted extraction resumes from its cache, and several processes share one."""

import os
import subprocess
import sys

import pytest
import torch

from infoshot import DataError
from infoshot.backbones import Encoder, make_backbone
from infoshot.backbones.checkpoints import save_checkpoint
from infoshot.features import read_features
from infoshot.features.api import extract
from infoshot.features.cache import FeatureCache
from infoshot.features.extract import Extraction, digest_images, encode_images
from tests.encoders import make_split
from tests.image_folders import make_folders

N_IMAGES = 160


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    return make_folders(folder, 40, size=(20, 24), splits={"test": "abcd"})


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return Encoder("conv4", make_backbone("conv4").eval(), "1" * 64)


@pytest.fixture
def run(root, encoder, tmp_path):
    """Extract small crops with a cache."""

    def run(**more):
        sizes = {"resize": 20, "crop": 16, "batch_size": 8, "dtype": "float32"}
        return extract("folder", root, backbone=encoder, **sizes, **more)

    return run


class StopError(Exception):
    """Raised to interrupt an extraction."""


def stop_after(n_images):
    def report(phase, done, total):
        assert (phase, total) == ("extracting test", N_IMAGES)
        if done >= n_images:
            raise StopError

    return report


@pytest.mark.usefixtures("by_pytorch")
def test_a_run_that_progress_interrupts_resumes(run, encoder, tmp_path):
    undisturbed = run()
    cache = tmp_path / "cache"
    with pytest.raises(StopError):
        run(cache=cache, progress=stop_after(1))
    sizes, seen = [], []
    encoder.backbone.register_forward_pre_hook(lambda _, x: sizes.append(len(x[0])))
    table = run(cache=cache, progress=lambda *event: seen.append(event))
    assert torch.equal(table.features, undisturbed.features)
    assert sum(sizes) == N_IMAGES - 8  # the first batch had been cached
    assert seen[0] == ("extracting test", 0, 152)
    assert seen[-1] == ("extracting test", 152, 152)


@pytest.mark.usefixtures("by_pytorch")
def test_a_run_whose_encoder_fails_resumes(run, encoder, tmp_path):
    undisturbed = run()
    cache, calls = tmp_path / "cache", []

    def fail(_, x):
        calls.append(len(x[0]))
        if len(calls) == 18:
            raise StopError

    hook = encoder.backbone.register_forward_pre_hook(fail)
    with pytest.raises(StopError):
        run(cache=cache)
    hook.remove()
    sizes = []
    encoder.backbone.register_forward_pre_hook(lambda _, x: sizes.append(len(x[0])))
    table = run(cache=cache)
    assert torch.equal(table.features, undisturbed.features)
    assert sum(sizes) == N_IMAGES - 17 * 8  # 17 batches had been cached


@pytest.mark.usefixtures("by_pytorch")
def test_every_content_is_encoded_once(root, tmp_path):
    split = make_split(tmp_path)
    torch.manual_seed(0)
    encoder = Encoder("conv4", make_backbone("conv4").eval(), "1" * 64)
    locations = [record.location for record in split.records]
    cache = FeatureCache(tmp_path / "cache", {"encoder": "conv4"})
    seen = []
    encoder.backbone.register_forward_pre_hook(lambda _, x: seen.append(len(x[0])))
    encoded = encode_images(
        [*locations, *locations], lambda: encoder, Extraction(batch_size=5), cache=cache
    )
    assert seen == [5]
    assert torch.equal(encoded.features[:5], encoded.features[5:])
    assert encoded.images_per_second > 0
    # The encoder is not opened if all features are cached.
    again = encode_images(locations, lambda: pytest.fail("opened"), Extraction(), cache=cache)
    assert torch.equal(again.features, encoded.features[:5])
    assert again.images_per_second is None


def test_an_image_that_changes_meanwhile_is_reported(root, tmp_path):
    split = make_split(tmp_path)
    encoder = Encoder("conv4", make_backbone("conv4").eval(), "1" * 64)
    locations = [record.location for record in split.records]
    digests = digest_images(locations, 1)
    locations[1].path.write_bytes(locations[0].path.read_bytes())
    locations[2].path.unlink()
    cache = FeatureCache(tmp_path / "cache", {"encoder": "conv4"})

    def encode(**more):
        return encode_images(
            locations, lambda: encoder, Extraction(), cache=cache, digests=digests, **more
        )

    encoded = encode()
    assert encoded.reasons[1] == "changed while it was read"
    assert encoded.reasons[2].startswith("cannot be read")
    assert encoded.features[[1, 2]].isnan().all()
    assert encoded.readable.tolist() == [True, False, False, True, True]
    assert cache.read([digests[1][0]]) == {}  # not stored under the digest of other content
    with pytest.raises(DataError, match=rf"^{locations[2].path}: cannot be read"):
        encode(strict=True)
    locations[2].path.write_bytes(locations[0].path.read_bytes())
    with pytest.raises(DataError, match=rf"^{locations[1].path}: changed while it was read\.$"):
        encode(strict=True)


SHARE = """
import sys
from infoshot.features.api import extract

root, checkpoint, out, batch_size, cache = sys.argv[1:]
extract("folder", root, checkpoint=checkpoint, out=out, device="cpu", resize=20, crop=16,
        batch_size=int(batch_size), dtype="float32", cache=cache or None)
"""


def two_processes(*arguments):
    script = arguments[0]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{script}: {done.stderr}"


def test_two_processes_with_a_cache_give_the_table_of_one(root, tmp_path):
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "c", "conv4", make_backbone("conv4").state_dict())
    (tmp_path / "share.py").write_text(SHARE)
    sizes = {"resize": 20, "crop": 16, "dtype": "float32"}
    expected = extract("folder", root, checkpoint=tmp_path / "c", **sizes, out=tmp_path / "one")
    cache = tmp_path / "cache"
    with pytest.raises(StopError):
        # What an interrupted process has cached is used by both.
        extract(
            "folder", root, checkpoint=tmp_path / "c", **sizes, cache=cache, progress=stop_after(64)
        )
    two_processes(tmp_path / "share.py", root, tmp_path / "c", tmp_path / "two", 4, cache)
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    assert torch.equal(read_features(tmp_path / "two").features, expected.features)
    # Now everything is cached.
    parts = {path: path.stat().st_mtime_ns for path in cache.glob("*/*")}
    seen = []
    again = extract(
        "folder", root, checkpoint=tmp_path / "c", **sizes, cache=cache,
        progress=lambda *event: seen.append(event),
    )  # fmt: skip
    assert not seen
    assert torch.equal(again.features, expected.features)
    assert {path: path.stat().st_mtime_ns for path in cache.glob("*/*")} == parts


@pytest.mark.parametrize("cached", [True, False])
def test_one_of_two_processes_may_have_no_images(cached, tmp_path):
    """Two images make one batch, which the first of two processes encodes."""
    root = make_folders(tmp_path / "images", 1, size=(20, 24), splits={"test": "ab"})
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "c", "conv4", make_backbone("conv4").state_dict())
    (tmp_path / "share.py").write_text(SHARE)
    extract(
        "folder", root, checkpoint=tmp_path / "c", resize=20, crop=16, dtype="float32",
        out=tmp_path / "one",
    )  # fmt: skip
    cache = tmp_path / "cache" if cached else ""
    two_processes(tmp_path / "share.py", root, tmp_path / "c", tmp_path / "two", 4, cache)
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
