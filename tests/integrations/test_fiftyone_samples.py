"""``label_fiftyone`` with the documented interface of samples, and with FiftyOne itself.

The stand-in has what https://docs.voxel51.com/api/fiftyone.core.collections.html documents of the
methods that are used.
"""

import os
import sys
import types
from pathlib import Path

import pytest

from infoshot import InvalidArgumentError, label_fiftyone


class StandInClassification:
    def __init__(self, label, confidence=None, **attributes):
        self.label, self.confidence = label, confidence
        self.__dict__.update(attributes)


class StandInSamples:
    media_type = "image"

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return (types.SimpleNamespace(**row) for row in self.rows)

    def values(self, path):
        name, _, attribute = path.partition(".")
        found = [row.get(name) for row in self.rows]
        return [getattr(value, attribute, None) for value in found] if attribute else found

    def has_sample_field(self, name):
        return any(name in row for row in self.rows)

    def set_values(self, name, values, dynamic=False):
        assert dynamic  # the schema lacks the attributes otherwise
        for row, value in zip(self.rows, values, strict=True):
            row[name] = value

    def limit(self, number):
        return StandInSamples(self.rows[:number])


@pytest.fixture
def stand_in(monkeypatch):
    module = types.SimpleNamespace(Classification=StandInClassification)
    monkeypatch.setitem(sys.modules, "fiftyone", module)

    def make(rows):
        own = [
            {**row, "truth": StandInClassification(row["truth"]) if row["truth"] else None}
            for row in rows
        ]
        return StandInSamples(own)

    return make


@pytest.fixture
def real(tmp_path_factory):
    """Real datasets; FiftyOne starts its own database, in a temporary folder."""
    if "fiftyone" not in sys.modules:
        folder = str(tmp_path_factory.mktemp("fiftyone"))
        os.environ |= {"FIFTYONE_DATABASE_DIR": folder, "FIFTYONE_DO_NOT_TRACK": "true"}
    fiftyone = pytest.importorskip("fiftyone")
    datasets = []

    def make(rows):
        dataset = fiftyone.Dataset()
        datasets.append(dataset)
        for row in rows:
            truth = fiftyone.Classification(label=row["truth"]) if row["truth"] else None
            dataset.add_sample(fiftyone.Sample(filepath=row["filepath"], truth=truth))
        return dataset

    yield make
    for dataset in datasets:
        dataset.delete()


@pytest.fixture(params=["stand_in", "real"])
def make(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def rows(images):
    """Eight images of each of three classes, two of each class with a label."""
    return [
        {
            "filepath": str(images / "all" / name / f"{number}.png"),
            "truth": name if number < 2 else None,
        }
        for name in ("cat", "dog", "eel")
        for number in range(8)
    ]


def class_of(sample):
    return Path(sample.filepath).parent.name


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_samples_without_a_label_get_classifications(make, rows, images, tmp_path):
    dataset, out = make(rows), tmp_path / "run"
    view = dataset.limit(23)
    result = label_fiftyone(view, out, examples_field="truth", backbone=images / "weights")
    known = {image.path: image for image in result.images}
    samples = list(dataset)
    assert getattr(samples[-1], "infoshot", None) is None  # not in the view
    assert len(known) == 17
    for sample in samples[:-1]:
        if sample.truth is not None:
            assert sample.infoshot is None
            continue
        image = known[sample.filepath]
        assert sample.infoshot.label == image.label
        assert sample.infoshot.confidence == pytest.approx(image.confidence)
        assert (sample.infoshot.status, sample.infoshot.runner_up) == (
            image.status,
            image.runner_up,
        )
        assert sample.infoshot.margin == pytest.approx(image.margin)
    right = [s.infoshot.label == class_of(s) for s in samples[:-1] if s.truth is None]
    assert sum(right) >= 14


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_examples_can_be_a_folder(make, rows, images, tmp_path):
    for name in ("cat", "eel"):
        (tmp_path / "examples").mkdir(exist_ok=True)
        (tmp_path / "examples" / name).symlink_to(images / "all" / name)
    dataset = make(rows)
    label_fiftyone(
        dataset,
        tmp_path / "run",
        examples=tmp_path / "examples",
        field="guess",
        backbone=images / "weights",
        method="prototype",
    )
    assert all(sample.guess.label in ("cat", "eel") for sample in dataset)
    right = [s.guess.label == class_of(s) for s in dataset if class_of(s) != "dog"]
    assert all(right)


def test_more_examples_change_the_labels_of_a_second_call(stand_in, rows, images, tmp_path):
    dataset, how = stand_in(rows), {"backbone": images / "weights", "cache": tmp_path / "cache"}
    first = label_fiftyone(dataset, tmp_path / "run", examples_field="truth", **how)
    assert first.images_per_second is not None
    dataset.rows[5]["truth"] = StandInClassification("ape")
    second = label_fiftyone(dataset, tmp_path / "run", examples_field="truth", **how)
    assert second.classes == ("ape", "cat", "dog", "eel")
    assert second.images_per_second is None  # all features are known
    assert dataset.rows[5]["infoshot"] is None


def test_odd_names_of_files_get_their_labels(stand_in, rows, images, tmp_path):
    odd = tmp_path / r" odd\x41, name.png"
    odd.write_bytes(Path(rows[4]["filepath"]).read_bytes())
    dataset = stand_in([*rows, {"filepath": str(odd), "truth": None}])
    label_fiftyone(dataset, tmp_path / "run", examples_field="truth", backbone=images / "weights")
    assert dataset.rows[-1]["infoshot"].label == dataset.rows[4]["infoshot"].label


def test_an_image_that_cannot_be_read_gets_no_label(stand_in, rows, images, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    dataset = stand_in([*rows, {"filepath": str(tmp_path / "broken.png"), "truth": None}])
    label_fiftyone(dataset, tmp_path / "run", examples_field="truth", backbone=images / "weights")
    assert dataset.rows[-1]["infoshot"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": []}, r"samples must be a FiftyOne dataset or view; got list\."),
        ({"examples_field": "no"}, r"must be a field of the samples; got 'no'\."),
        ({"field": "truth"}, r"field must differ from examples_field.* got 'truth'\."),
        ({"examples": "folder"}, r"give either examples_field or examples; got both\."),
        ({"examples_field": None}, r"give either examples_field or examples; got neither\."),
    ],
)
def test_wrong_arguments_are_refused_before_any_work(stand_in, rows, tmp_path, change, message):
    arguments = {"samples": stand_in(rows), "examples_field": "truth", **change}
    with pytest.raises(InvalidArgumentError, match=message):
        label_fiftyone(out=tmp_path / "run", **arguments)
    assert not list(tmp_path.iterdir())


def test_videos_and_samples_that_all_have_a_label_are_refused(stand_in, rows, tmp_path):
    labelled = stand_in([row for row in rows if row["truth"]])
    with pytest.raises(InvalidArgumentError, match=r"at least one image without a label; got 0\."):
        label_fiftyone(labelled, tmp_path / "run", examples_field="truth")
    labelled.media_type = "video"
    with pytest.raises(InvalidArgumentError, match=r"samples must be images; got video\."):
        label_fiftyone(labelled, tmp_path / "run", examples_field="truth")
