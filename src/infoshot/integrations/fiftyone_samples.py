"""Label the samples of a FiftyOne dataset or view.

https://docs.voxel51.com/user_guide/using_datasets.html
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infoshot.core.atomic import write_atomically
from infoshot.core.csv_file import csv_text
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.types import AnyPath
from infoshot.labelling import ImageLabel, LabelResult, label
from infoshot.labelling.corrections import ImageNames


def label_fiftyone(
    samples: Any,  # noqa: ANN401 - of a package that need not be installed
    out: AnyPath,
    *,
    examples_field: str | None = None,
    examples: AnyPath | None = None,
    field: str = "infoshot",
    **options: Any,  # noqa: ANN401 - those of label
) -> LabelResult:
    """Label the images of a FiftyOne dataset or view from a few examples per class.

    Every sample gets a ``fiftyone.Classification`` with a confidence, and with the attributes
    ``status``, ``runner_up`` and ``margin`` of :class:`infoshot.ImageLabel`. Samples without a
    label, and those that are examples themselves, get ``None``. Calling it again, for example after
    adding examples, replaces these labels; features of images are computed once.

    Parameters
    ----------
    samples
        A FiftyOne dataset or view of images.
    out
        Folder for the run, as in :func:`infoshot.label`. Two lists of images are written beside it,
        ``OUT.photos.csv`` and ``OUT.examples.csv``.
    examples_field
        Field with the ``Classification`` of the examples: samples that have one are the examples.
    examples
        Instead of ``examples_field``: a folder with one folder per class, or a CSV file.
    field
        Field that the labels are written to. It is created if it does not exist.
    options
        Other arguments of :func:`infoshot.label`, such as ``method`` or ``reject_outliers``.

    Returns
    -------
    The labels of the run.

    Raises
    ------
    InvalidArgumentError, DataError
        Before any work if an argument does not fit, and as in :func:`infoshot.label`.

    Examples
    --------
    >>> view = dataset.limit(1000)  # doctest: +SKIP
    >>> result = label_fiftyone(view, "run", examples_field="ground_truth")  # doctest: +SKIP
    >>> dataset.first().infoshot.confidence  # doctest: +SKIP
    0.97
    """
    _check(samples, examples_field, examples, field)
    files = [os.path.abspath(file) for file in samples.values("filepath")]  # noqa: PTH100 - links
    of_example: dict[str, str] = {}
    if examples_field is not None:
        given = samples.values(f"{examples_field}.label")
        of_example = {file: name for file, name in zip(files, given, strict=True) if name}
    rest = [(file,) for file in files if file not in of_example]
    if not rest:
        raise InvalidArgumentError("samples must hold at least one image without a label; got 0.")
    if examples is None:
        examples = _write_list(out, "examples", ("path", "label"), list(of_example.items()))
    result = label(examples, _write_list(out, "photos", ("path",), rest), out, **options)
    names, of_path = ImageNames(result.images), {image.path: image for image in result.images}
    found = [None if file in of_example else of_path.get(names.find(file) or "") for file in files]
    samples.set_values(field, [_classification(image) for image in found], dynamic=True)
    return result


def _check(
    samples: Any,  # noqa: ANN401
    examples_field: str | None,
    examples: AnyPath | None,
    field: str,
) -> None:
    if not hasattr(samples, "set_values"):
        raise InvalidArgumentError(
            f"samples must be a FiftyOne dataset or view; got {type(samples).__name__}."
        )
    if samples.media_type != "image":
        raise InvalidArgumentError(f"samples must be images; got {samples.media_type}.")
    if (examples_field is None) == (examples is None):
        got = "neither" if examples is None else "both"
        raise InvalidArgumentError(f"give either examples_field or examples; got {got}.")
    if examples_field is not None and not samples.has_sample_field(examples_field):
        raise InvalidArgumentError(
            f"examples_field must be a field of the samples; got '{examples_field}'."
        )
    if field == examples_field:
        raise InvalidArgumentError(
            f"field must differ from examples_field, which it would replace; got '{field}'."
        )


def _write_list(
    out: AnyPath, kind: str, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> Path:
    """Write a list of images beside the run, where it is found again by the next call."""
    path = Path(f"{os.fspath(out)}.{kind}.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, csv_text(header, rows).encode())
    return path


def _classification(image: ImageLabel | None) -> Any:  # noqa: ANN401 - fiftyone.Classification
    from fiftyone import Classification

    if image is None or not image.label:
        return None
    return Classification(
        label=image.label,
        confidence=image.confidence,
        status=image.status,
        runner_up=image.runner_up,
        margin=image.margin,
    )
