"""Labels of simulated features, whose classes are known."""

from pathlib import Path

import pytest
import torch

from infoshot.features.extract import Encoded
from infoshot.images.folders import ImageFile
from infoshot.labelling.decide import Example, Request, choose_suggestions, decide_labels
from infoshot.labelling.label_report import collect_warnings

CLASSES = ("cat", "dog", "eel", "fox")
REQUEST = Request(
    examples="e", photos="p", backbone="b", method="tim-auto", settings={}, threshold=0.5,
    reject_outliers=False, prior=None,
)  # fmt: skip
ENCODER = {"weights_sha256": "0", "transform": "t", "infoshot": "0"}


def decide(counts, *, n_shot=8, outliers=0, broken=0, noise=0.35, wrong=None, **changes):
    """Label ``counts`` photos of the classes, photos of no class, and unreadable ones."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.linalg.qr(torch.randn(64, 8, generator=generator)).Q.T

    def draw(classes):
        return centres[classes] + noise * torch.randn(len(classes), 64, generator=generator) / 8

    true_classes = torch.arange(len(CLASSES)).repeat_interleave(n_shot)
    examples = [
        Example(CLASSES[k], ImageFile(f"e{i}.png", Path(f"e{i}.png")), f"e{i}")
        for i, k in enumerate(true_classes.tolist())
    ]
    if wrong is not None:
        examples[wrong] = Example("eel", examples[wrong].image, examples[wrong].digest)
    truth = torch.cat([torch.full((n,), k) for k, n in enumerate(counts)]).long()
    features = torch.cat((draw(truth), draw(torch.arange(outliers) % 4 + 4)))
    features = torch.cat((features, torch.full((broken, 64), torch.nan)))
    photos = [ImageFile(f"{i}.png", Path(f"{i}.png")) for i in range(len(features))]
    reasons = [""] * (len(features) - broken) + ["empty"] * broken
    encoded = Encoded(features, [f"p{i}" for i in range(len(features))], reasons)
    request = Request(**{**vars(REQUEST), **changes})
    return decide_labels(request, examples, draw(true_classes), photos, encoded, ENCODER), truth


def test_classes_outliers_and_broken_files_are_distinguished():
    decision, truth = decide((40, 40, 40, 40), outliers=30, broken=2)
    statuses = [photo.status for photo in decision.labels]
    correct = [decision.labels[i].label == CLASSES[k] for i, k in enumerate(truth.tolist())]
    assert all(correct)
    assert statuses[160:190] == ["outlier"] * 30
    assert statuses[190:] == ["unreadable"] * 2
    assert sum(status == "outlier" for status in statuses[:160]) <= 16  # 5 % are expected
    assert all(photo.label for photo in decision.labels[:190])
    assert decision.labels[190].reason == "empty"
    text = " ".join(collect_warnings(decision))
    assert "look unlike the examples of every class" in text
    assert "Is a class missing?" in text
    assert "2 files cannot be read" in text


def test_outliers_can_be_left_without_a_label():
    decision, _ = decide((40, 40, 40, 40), outliers=12, reject_outliers=True)
    assert {photo.label for photo in decision.labels[160:]} == {""}
    assert {photo.status for photo in decision.labels[160:]} == {"outlier"}


def test_the_classifier_labels_new_images_in_the_same_way():
    decision, truth = decide((40, 40, 40, 40))
    p = decision.classifier.probabilities(decision.features)
    assert torch.equal(p.argmax(-1), truth)
    assert decision.classifier.find_outliers(-decision.features).all()
    outliers = [photo.status == "outlier" for photo in decision.labels]
    assert decision.classifier.find_outliers(decision.features).tolist() == outliers


def test_imbalance_and_empty_classes_give_warnings():
    decision, _ = decide((150, 2, 2, 0))
    text = " ".join(collect_warnings(decision))
    assert "'cat' has 9" in text
    assert "No photo was labelled 'fox'" in text


def test_a_mislabelled_example_gives_a_warning():
    decision, _ = decide((40, 40, 40, 40), wrong=0)
    (example, guess), *others = decision.find_odd_examples()
    assert (example.image.path, example.label, guess, others) == ("e0.png", "eel", "cat", [])
    assert collect_warnings(decision)[0] == (
        "1 example was classified as another class when held out (hard or mislabelled): "
        "'e0.png' ('eel') looks like 'cat'."
    )


def test_few_photos_and_few_examples_give_warnings():
    decision, _ = decide((1, 1, 1, 1), n_shot=1)
    text = " ".join(collect_warnings(decision))
    assert "4 photos for 4 classes are too few to learn from" in text
    assert "0 examples can be held out, which is too few to calibrate" in text


def test_ordinary_photos_give_no_warning():
    decision, _ = decide((50, 40, 45, 35))
    assert collect_warnings(decision) == []


def test_identical_images_give_warnings():
    decision, _ = decide((40, 40, 40, 40))
    decision.features[3] = decision.z_sup[5]
    decision.features[4] = 3 * decision.z_sup[6]
    decision.digests[3] = "e5"
    assert collect_warnings(decision) == [
        "1 photo is the same file as an example.",
        "1 photo is nearly identical to an example.",
    ]


def test_suggestions_are_doubtful_and_unlike_each_other():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(5, 16, generator=generator)
    group = torch.arange(200) % 5
    features = centres[group] + 0.01 * torch.randn(200, 16, generator=generator)
    p = torch.tensor([0.98, 0.01, 0.01]).repeat(200, 1)
    p[group < 4] = torch.tensor([0.45, 0.45, 0.10])
    p[7] = torch.nan
    chosen = choose_suggestions(features, p, centres[:1], 3)
    assert sorted(group[chosen].tolist()) == [1, 2, 3]  # neither group 0 (known) nor 4 (certain)
    assert 7 not in choose_suggestions(features, p, centres[:1], 200)
    assert len(set(choose_suggestions(features, p, centres[:1], 150))) == 150


@pytest.mark.parametrize("method", ["prototype", "tim-adm", "tim-gd", "alpha-tim", "soft-kmeans"])
def test_other_methods(method):
    decision, truth = decide((40, 40, 40, 40), method=method)
    correct = [decision.labels[i].label == CLASSES[k] for i, k in enumerate(truth.tolist())]
    assert sum(correct) > 155
