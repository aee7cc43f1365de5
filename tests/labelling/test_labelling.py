"""A labelling of features whose structure is known."""

from pathlib import Path

import pytest
import torch
from infoshot.features.encode import Encoded
from infoshot.labelling.warn import warnings_of

from infoshot.images.folders import Found
from infoshot.labelling.decide import Example, Request, label_photos
from infoshot.labelling.suggest import worth_labelling

CLASSES = ("cat", "dog", "eel", "fox")
REQUEST = Request(
    examples="e", photos="p", backbone="b", method="tim-auto", settings={}, threshold=0.5,
    reject_outliers=False, prior=None,
)  # fmt: skip
ENCODER = {"weights_sha256": "0", "transform": "t", "infoshot": "0"}


def labelled(counts, *, n_shot=8, strangers=0, broken=0, noise=0.35, wrong=None, **changes):
    """Label photos of as many of every class, some of no class, and some that cannot be read."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.linalg.qr(torch.randn(64, 8, generator=generator)).Q.T

    def draw(classes):
        return centres[classes] + noise * torch.randn(len(classes), 64, generator=generator) / 8

    looks = torch.arange(len(CLASSES)).repeat_interleave(n_shot)
    examples = [
        Example(CLASSES[k], Found(f"e{i}.png", Path(f"e{i}.png")), f"e{i}")
        for i, k in enumerate(looks.tolist())
    ]
    if wrong is not None:
        examples[wrong] = Example("eel", examples[wrong].image, examples[wrong].digest)
    truth = torch.cat([torch.full((n,), k) for k, n in enumerate(counts)]).long()
    features = torch.cat((draw(truth), draw(torch.arange(strangers) % 4 + 4)))
    features = torch.cat((features, torch.full((broken, 64), torch.nan)))
    photos = [Found(f"{i}.png", Path(f"{i}.png")) for i in range(len(features))]
    reasons = [""] * (len(features) - broken) + ["empty"] * broken
    encoded = Encoded(features, [f"p{i}" for i in range(len(features))], reasons)
    request = Request(**{**vars(REQUEST), **changes})
    return label_photos(request, examples, draw(looks), photos, encoded, ENCODER), truth


def test_classes_strangers_and_broken_files_are_told_apart():
    outcome, truth = labelled((40, 40, 40, 40), strangers=30, broken=2)
    statuses = [photo.status for photo in outcome.photos]
    right = [outcome.photos[i].label == CLASSES[k] for i, k in enumerate(truth.tolist())]
    assert all(right)
    assert statuses[160:190] == ["outlier"] * 30
    assert statuses[190:] == ["unreadable"] * 2
    assert sum(status == "outlier" for status in statuses[:160]) <= 16  # 5 in 100 are meant to be
    assert all(photo.label for photo in outcome.photos[:190])
    assert outcome.photos[190].reason == "empty"
    words = " ".join(warnings_of(outcome))
    assert "look unlike the examples of every class" in words
    assert "Is a class missing?" in words
    assert "2 files could not be read" in words


def test_labels_of_strangers_can_be_withheld():
    outcome, _ = labelled((40, 40, 40, 40), strangers=12, reject_outliers=True)
    assert {photo.label for photo in outcome.photos[160:]} == {""}
    assert {photo.status for photo in outcome.photos[160:]} == {"outlier"}


def test_newcomers_are_judged_alike():
    outcome, truth = labelled((40, 40, 40, 40))
    p = outcome.classifier.probabilities(outcome.features)
    assert torch.equal(p.argmax(-1), truth)
    assert outcome.classifier.strange(-outcome.features).all()
    strange = [photo.status == "outlier" for photo in outcome.photos]
    assert outcome.classifier.strange(outcome.features).tolist() == strange


def test_skew_and_classes_of_nobody_are_said():
    outcome, _ = labelled((150, 2, 2, 0))
    words = " ".join(warnings_of(outcome))
    assert "'cat' has 9" in words
    assert "No photo was labelled 'fox'" in words


def test_a_mislabelled_example_is_named():
    outcome, _ = labelled((40, 40, 40, 40), wrong=0)
    (example, guess), *others = outcome.odd_examples()
    assert (example.image.path, example.label, guess, others) == ("e0.png", "eel", "cat", [])
    assert warnings_of(outcome)[0] == (
        "1 example came out as another class when held out, hard or mislabelled: 'e0.png' ('eel') "
        "looks like 'cat'."
    )


def test_few_photos_and_few_examples_are_said():
    outcome, _ = labelled((1, 1, 1, 1), n_shot=1)
    words = " ".join(warnings_of(outcome))
    assert "4 photos for 4 classes are too few to learn from" in words
    assert "0 examples could be held out, too few to calibrate" in words


def test_an_ordinary_pile_raises_no_warning():
    outcome, _ = labelled((50, 40, 45, 35))
    assert warnings_of(outcome) == []


def test_identical_images_are_said():
    outcome, _ = labelled((40, 40, 40, 40))
    outcome.features[3] = outcome.z_sup[5]
    outcome.features[4] = 3 * outcome.z_sup[6]
    outcome.digests[3] = "e5"
    assert warnings_of(outcome) == [
        "1 photo is the same file as an example.",
        "1 photo is nearly identical to an example.",
    ]


def test_what_is_worth_labelling_is_in_doubt_and_spread():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(5, 16, generator=generator)
    group = torch.arange(200) % 5
    features = centres[group] + 0.01 * torch.randn(200, 16, generator=generator)
    p = torch.tensor([0.98, 0.01, 0.01]).repeat(200, 1)
    p[group < 4] = torch.tensor([0.45, 0.45, 0.10])
    p[7] = torch.nan
    chosen = worth_labelling(features, p, centres[:1], 3)
    assert sorted(group[chosen].tolist()) == [1, 2, 3]  # not group 0 (known), nor 4 (certain)
    assert 7 not in worth_labelling(features, p, centres[:1], 200)
    assert len(set(worth_labelling(features, p, centres[:1], 150))) == 150


@pytest.mark.parametrize("method", ["prototype", "tim-adm", "tim-gd", "alpha-tim", "soft-kmeans"])
def test_other_methods(method):
    outcome, truth = labelled((40, 40, 40, 40), method=method)
    right = [outcome.photos[i].label == CLASSES[k] for i, k in enumerate(truth.tolist())]
    assert sum(right) > 155
