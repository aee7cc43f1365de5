"""Label new images one by one, with the classifier that a run left behind."""

from pathlib import Path

import torch

from infoshot.backbones.encoders import open_encoder
from infoshot.core.errors import DataError
from infoshot.features.encode import digest_files, encode_files, encoder_facts
from infoshot.features.extract import Extraction
from infoshot.features.store import FeatureStore
from infoshot.images.folders import find_photos
from infoshot.images.workers import decode_workers
from infoshot.labelling.api import NOBODY, Watcher
from infoshot.labelling.classifier import Classifier
from infoshot.labelling.decide import label_lines
from infoshot.labelling.photo import PhotoLabel


def label_newcomers(
    classifier: Classifier,
    images: Path,
    *,
    cache: Path,
    device: str = "cpu",
    watcher: Watcher = NOBODY,
) -> list[PhotoLabel]:
    """A label for every image; what one of them gets does not depend on the others.

    Raises
    ------
    DataError
        If there are no images, or the encoder is not the one the classifier was made with.
    """
    photos = find_photos(images)
    checkpoint, how = open_encoder(classifier.backbone), Extraction(device=device)
    facts = encoder_facts(checkpoint, how)
    if facts["weights_sha256"] != classifier.encoder["weights_sha256"]:
        raise DataError(
            f"the encoder '{classifier.backbone}' has other weights than the classifier was made "
            "with."
        )
    watcher.phase("reading", 0)
    looked = digest_files(photos, decode_workers())
    encoded = encode_files(
        photos,
        looked,
        lambda: checkpoint,
        how,
        FeatureStore(cache, facts),
        on_start=lambda n_new: watcher.phase("encoding", n_new),
        on_progress=watcher.advance,
    )
    readable = encoded.readable
    probabilities = torch.full((len(photos), len(classifier.classes)), torch.nan)
    strange = torch.zeros(len(photos), dtype=torch.bool)
    if readable.any():
        probabilities[readable] = classifier.probabilities(encoded.features[readable])
        strange[readable] = classifier.strange(encoded.features[readable])
    return label_lines(
        classifier, photos, classifier.classes, probabilities, strange, encoded.reasons
    )
