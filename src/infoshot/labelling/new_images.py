"""Label new images with the classifier of a run."""

import dataclasses
import warnings
from pathlib import Path

import torch

from infoshot.backbones import EncoderLike, open_encoder
from infoshot.core.cache_folder import default_cache_folder
from infoshot.core.environment import default_device
from infoshot.core.errors import DataError
from infoshot.core.outputs import write_output
from infoshot.core.progress import ProgressLike, open_progress
from infoshot.core.types import AnyPath
from infoshot.distributed import EngineLike, find_engine
from infoshot.features.cache import FeatureCache
from infoshot.features.extract import (
    Extraction,
    check_same_encoder,
    encode_images,
    encoder_provenance,
)
from infoshot.features.ray_shards import encode_images_on_ray
from infoshot.images.folders import find_images
from infoshot.labelling.classifier import load_classifier
from infoshot.labelling.decide import ImageLabel, make_labels
from infoshot.labelling.output_checks import check_results
from infoshot.labelling.run_folder import find_run_cache, find_run_images, format_labels


def predict(
    classifier: AnyPath,
    images: AnyPath,
    *,
    out: AnyPath | None = None,
    backbone: EncoderLike | None = None,
    reject_outliers: bool = False,
    cache: AnyPath | None = None,
    device: str | None = None,
    csv_safe: bool = False,
    engine: EngineLike = "torchrun",
    progress: ProgressLike = None,
) -> list[ImageLabel]:
    """Label new images with the classifier of a run, each independently of the others.

    Parameters
    ----------
    classifier
        Folder of a run, or its classifier.safetensors.
    images
        A folder tree of images, a CSV file, or a text file with a path per line.
    out
        CSV file for the labels.
    backbone
        The encoder of the run; by default it is opened by its name. Needed if the run got a module
        or an encoder with weights that its name does not give.
    reject_outliers
        Give no label to images that are unlike the examples of every class.
    cache
        Folder in which features are cached; by default that of the run.
    engine
        ``torchrun``: this process. ``ray``, or a :class:`infoshot.RayEngine`: the workers of a Ray
        cluster encode the images. They all use ``cache``.
    device, csv_safe, progress
        As in :func:`label`.

    Returns
    -------
    One :class:`ImageLabel` per image.

    Raises
    ------
    DataError
        If there are no images, or the encoder has changed since the run.

    Examples
    --------
    >>> [image.label for image in predict("run", "new_photos")]
    ['cat', 'dog']
    """
    source, given, on_ray = Path(classifier), Path(images), find_engine(engine)
    known = load_classifier(source)
    known = dataclasses.replace(known, reject_outliers=reject_outliers or known.reject_outliers)
    check_results([source, given, *find_run_images(source)], [None if out is None else Path(out)])
    files = find_images(given)
    backbone = known.backbone if backbone is None else backbone
    encoder = open_encoder(backbone)
    how = Extraction(device="cpu" if on_ray else device or default_device())
    check_same_encoder(encoder, how, known.encoder)
    if encoder.backbone.feature_dim != known.weights.shape[1]:
        raise DataError(f"{source}: its class weights do not fit the features of the encoder.")
    folder = Path(cache) if cache else find_run_cache(source) or default_cache_folder()
    provenance, locations = encoder_provenance(encoder, how), [file.location for file in files]
    with open_progress(progress) as bar:
        if on_ray is not None:
            encoded = encode_images_on_ray(
                locations,
                backbone,
                provenance,
                cache=folder,
                engine=on_ray,
                device=device,
                progress=bar,
            )
        else:
            kept = FeatureCache(folder, provenance, encoder.backbone.feature_dim)
            encoded = encode_images(locations, lambda: encoder, how, cache=kept, progress=bar)
    readable = encoded.readable
    probabilities = torch.full((len(files), len(known.classes)), torch.nan)
    outliers = torch.zeros(len(files), dtype=torch.bool)
    if readable.any():
        probabilities[readable] = known.probabilities(encoded.features[readable])
        outliers[readable] = known.find_outliers(encoded.features[readable])
    labels = make_labels(known, files, probabilities, outliers, encoded.reasons)
    unreadable = [label for label in labels if label.status == "unreadable"]
    if unreadable:
        warnings.warn(
            f"{len(unreadable)} of {len(labels)} images cannot be read, such as "
            f"{unreadable[0].path} ({unreadable[0].reason}).",
            UserWarning,
            stacklevel=2,
        )
    if out is not None:
        write_output(out, format_labels(labels, csv_safe=csv_safe))
    return labels
