"""Every layout, as real files, gives the same data set."""

import csv
import io
import json
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from infoshot import DataError, InvalidArgumentError
from infoshot.images import open_dataset
from infoshot.images.inspection import inspect_dataset
from infoshot.images.splits import cub_split, published_split

CLASSES = {"n01532829": "train", "n01855672": "val", "n01930112": "test", "n01981276": "test"}
N_IMAGES = 3


def _pixels(class_name, number):
    generator = np.random.default_rng([int(class_name[1:]), number])
    return generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)


def _png(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def _images():
    for class_name in CLASSES:
        for number in range(N_IMAGES):
            yield class_name, f"{class_name}{number:08d}.png", _pixels(class_name, number)


def _write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def class_folders(root):
    for class_name, name, pixels in _images():
        _write(root / class_name / name, _png(pixels))


def folders_in_images(root):
    class_folders(root / "images")


def split_folders(root):
    for class_name, name, pixels in _images():
        _write(root / CLASSES[class_name] / class_name / name, _png(pixels))


def lists(root, header=True):
    for split in ("train", "val", "test"):
        with (root / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            if header:
                writer.writerow(["filename", "label"])
            for class_name, name, pixels in _images():
                if CLASSES[class_name] == split:
                    writer.writerow([name, class_name])
                    _write(root / "images" / name, _png(pixels))


def lists_without_header(root):
    lists(root, header=False)


def tars(root):
    for shard in range(2):
        with tarfile.open(root / f"part-{shard}.tar", "w") as tar:
            for place, (class_name, name, pixels) in enumerate(_images()):
                if place % 2 == shard:
                    _add(tar, f"{class_name}/{name}", _png(pixels))


def mini_pickles(root):
    for split in ("train", "val", "test"):
        chosen = [(name, pixels) for name, _, pixels in _images() if CLASSES[name] == split]
        classes = {}
        for row, (class_name, _) in enumerate(chosen):
            classes.setdefault(class_name, []).append(row)
        content = {"image_data": np.stack([pixels for _, pixels in chosen]), "class_dict": classes}
        protocol = 2 if split == "train" else 5
        path = root / f"mini-imagenet-cache-{split}.pkl"
        path.write_bytes(pickle.dumps(content, protocol=protocol))


def _add(tar, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


LAYOUTS = [
    class_folders,
    folders_in_images,
    split_folders,
    lists,
    lists_without_header,
    tars,
    mini_pickles,
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_every_layout_gives_the_same_images(layout, tmp_path):
    layout(tmp_path)
    dataset = open_dataset("mini-imagenet", tmp_path)
    for split in ("train", "val", "test"):
        part = dataset.split(split)
        names = sorted(name for name, its in CLASSES.items() if its == split)
        assert part.class_names == names
        assert part.labels == [k for k in range(len(names)) for _ in range(N_IMAGES)]
        for k, class_name in enumerate(names):
            rows = [record.location.pixels() for record in part.records[k * N_IMAGES :][:N_IMAGES]]
            expected = [_pixels(class_name, number) for number in range(N_IMAGES)]
            np.testing.assert_array_equal(rows, expected)


def test_tiered_pickles(tmp_path):
    names = {"train": ["house finch", "robin"], "val": ["snake"], "test": ["canoe"]}
    for split, classes in names.items():
        labels = np.repeat(np.arange(len(classes)), 2)
        images = [
            np.frombuffer(_png(_pixels("n1", row)), dtype=np.uint8).reshape(-1, 1)
            for row in range(len(labels))
        ]
        (tmp_path / f"{split}_images_png.pkl").write_bytes(pickle.dumps(images))
        content = {"label_specific": labels, "label_specific_str": classes}
        (tmp_path / f"{split}_labels.pkl").write_bytes(pickle.dumps(content))
    dataset = open_dataset("tiered-imagenet", tmp_path)
    train = dataset.split("train")
    assert train.class_names == ["house finch", "robin"]
    assert train.labels == [0, 0, 1, 1]
    np.testing.assert_array_equal(train.records[3].location.pixels(), _pixels("n1", 3))
    assert dataset.split("test").class_names == ["canoe"]
    assert dataset.missing_classes() == []


def test_tiered_pickles_without_names_keep_their_splits_apart(tmp_path):
    for split in ("train", "test"):
        image = np.frombuffer(_png(_pixels("n1", 0)), dtype=np.uint8)
        (tmp_path / f"{split}_images_png.pkl").write_bytes(pickle.dumps([image]))
        labels = {"label_specific": np.array([0])}
        (tmp_path / f"{split}_labels.pkl").write_bytes(pickle.dumps(labels))
    dataset = open_dataset("tiered-imagenet", tmp_path)
    assert dataset.split("train").class_names == ["train class 0"]
    assert dataset.split("test").class_names == ["test class 0"]


def test_cub_official_tree_and_class_folders_agree(tmp_path):
    folders = [f"{i + 1:03d}.Bird_{i}" for i in range(8)]
    official = tmp_path / "official"
    lines = []
    for number, folder in enumerate(folders):
        _write(official / "images" / folder / "x.png", _png(_pixels("n2", number)))
        _write(tmp_path / "plain" / folder / "x.png", _png(_pixels("n2", number)))
        lines.append((f"{number + 1} {folder}/x.png", f"{number + 1} {number + 1}"))
    (official / "images.txt").write_text("\n".join(line for line, _ in lines))
    (official / "image_class_labels.txt").write_text("\n".join(line for _, line in lines))
    trees = [open_dataset("cub", root) for root in (official, tmp_path / "plain")]
    for split, expected in (("train", [0, 2, 4, 6]), ("val", [1, 5]), ("test", [3, 7])):
        for tree in trees:
            assert tree.split(split).class_names == [folders[i] for i in expected]
        assert trees[0].split(split).digest() == trees[1].split(split).digest()


def test_published_splits_have_the_published_sizes():
    for name, sizes in (("mini-imagenet", (64, 16, 20)), ("tiered-imagenet", (351, 97, 160))):
        splits = list(published_split(name).values())
        assert tuple(splits.count(split) for split in ("train", "val", "test")) == sizes
    splits = list(cub_split(f"{i:03d}" for i in range(200)).values())
    assert [splits.count(split) for split in ("train", "val", "test")] == [100, 50, 50]


def test_splits_of_folder(tmp_path):
    split_folders(tmp_path / "a")
    assert open_dataset("folder", tmp_path / "a").split("val").class_names == ["n01855672"]
    class_folders(tmp_path / "b")
    assert len(open_dataset("folder", tmp_path / "b").split("test").class_names) == 4
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({"train": ["n01930112"], "test": ["n01981276"]}))
    dataset = open_dataset("folder", tmp_path / "b", splits)
    assert dataset.split("train").class_names == ["n01930112"]
    assert set(dataset.counts()) == {"train", "test", ""}


def test_digest_follows_content_and_class(tmp_path):
    class_folders(tmp_path)
    before = open_dataset("folder", tmp_path).split("test").digest()
    path = next((tmp_path / "n01930112").iterdir())
    content = path.read_bytes()
    path.rename(path.with_name("renamed.png"))
    assert open_dataset("folder", tmp_path).split("test").digest() is not None
    path.with_name("renamed.png").rename(path)
    assert open_dataset("folder", tmp_path).split("test").digest() == before
    path.write_bytes(_png(_pixels("n3", 0)))
    assert open_dataset("folder", tmp_path).split("test").digest() != before
    path.write_bytes(content)
    (tmp_path / "n01930112").rename(tmp_path / "other")
    assert open_dataset("folder", tmp_path).split("test").digest() != before


def test_inspection_lists_missing_unknown_ignored_and_broken(tmp_path):
    class_folders(tmp_path)
    _write(tmp_path / "cats" / "a.png", _png(_pixels("n4", 0)))
    (tmp_path / "n01930112" / "notes.txt").write_text("hello")
    (tmp_path / "n01930112" / "broken.jpg").write_bytes(b"")
    inspection = inspect_dataset("mini-imagenet", tmp_path)
    test = {count.split: count for count in inspection.splits}["test"]
    assert (test.classes, test.images, test.published_classes) == (2, 7, 20)
    assert len(inspection.missing_classes) == 96
    assert inspection.unknown_classes == ["cats"]
    assert [Path(name).name for name in inspection.ignored] == ["notes.txt"]
    assert len(inspection.broken) == 1
    assert "broken.jpg: the file is empty" in inspection.broken[0]
    assert not inspection.complete
    assert not inspect_dataset("mini-imagenet", tmp_path, decode=False).broken


class _Malicious:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_pickle_with_code_is_refused_and_not_executed(tmp_path):
    marker = tmp_path / "executed"
    content = {"image_data": _Malicious(marker), "class_dict": {}}
    (tmp_path / "mini-imagenet-cache-train.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"cache-train\.pkl: not allowed.*it calls \w+\.mkdir"):
        open_dataset("mini-imagenet", tmp_path)
    assert not marker.exists()


def test_tar_that_points_outside_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        _add(tar, "../../evil/x.png", _png(_pixels("n5", 0)))
    with pytest.raises(
        DataError, match=r"a\.tar: the member '\.\./\.\./evil/x\.png' points outside"
    ):
        open_dataset("folder", tmp_path)


def _unreadable(path):
    raise PermissionError(13, "Permission denied")


BAD = {
    "no folder": (lambda root: root.rmdir(), "there is no such folder"),
    "empty folder": (lambda root: None, "no images found; mini-imagenet may be class folders"),
    "truncated tar": (lambda root: (tars(root), (root / "part-0.tar").write_bytes(b"x" * 700)), r"part-0\.tar: not a complete, uncompressed tar archive"),
    "truncated pickle": (lambda root: (mini_pickles(root), (root / "mini-imagenet-cache-val.pkl").write_bytes(b"\x80\x05")), r"cache-val\.pkl: not allowed, or not a complete pickle"),
    "pickle of something else": (lambda root: (root / "mini-imagenet-cache-val.pkl").write_bytes(pickle.dumps([1, 2])), r"must have image_data \[N, H, W, 3\] and class_dict"),
    "list with three columns": (lambda root: (root / "train.csv").write_text("a.jpg,n1,extra\n"), r"train\.csv: line 1 must be 'filename,label'; got 'a.jpg,n1,extra'"),
    "class in two lists": (lambda root: ((root / "train.csv").write_text("a.jpg,n1\n"), (root / "val.csv").write_text("b.jpg,n1\n")), r"val\.csv: a class must be in one split only; 'n1' is in train and val"),
    "class in two split folders": (lambda root: (_write(root / "train" / "c" / "a.png", b"x"), _write(root / "val" / "c" / "b.png", b"x")), r"a class must be in one split only; 'c' is in train and val"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_data_gives_one_sentence(case, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    make, message = BAD[case]
    make(root)
    with pytest.raises(DataError, match=message) as caught:
        open_dataset("mini-imagenet", root)
    assert str(root) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_folder_is_named(tmp_path, monkeypatch):
    class_folders(tmp_path)
    monkeypatch.setattr(Path, "iterdir", _unreadable)
    with pytest.raises(DataError, match=r"cannot be read \(Permission denied\)"):
        open_dataset("folder", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[1]", "a split file is"),
        ('{"training": []}', "a split file is"),
        ('{"train": ["a"], "val": ["a"]}', "'a' is in train and val"),
    ],
)
def test_bad_split_files_are_named(content, message, tmp_path):
    class_folders(tmp_path)
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(DataError, match=message):
        open_dataset("folder", tmp_path, tmp_path / "s.json")


def test_unknown_names_are_answered_with_the_nearest(tmp_path):
    class_folders(tmp_path)
    with pytest.raises(InvalidArgumentError, match="Did you mean 'mini-imagenet'"):
        open_dataset("mini-imagenett", tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"Unknown split 'tset'\. Did you mean 'test'"):
        open_dataset("folder", tmp_path).split("tset")
    with pytest.raises(DataError, match="there are no images of the split 'val'"):
        open_dataset("folder", tmp_path).split("val")


def test_lists_with_names_that_no_file_can_have_are_read(tmp_path):
    (tmp_path / "train.csv").write_text(f"filename,label\n{'a' * 300}.jpg,cat\n")
    (record,) = open_dataset("folder", tmp_path).split("train").records
    with pytest.raises(DataError, match="cannot be read"):
        record.location.content()
