"""The files of a run: their names, what run.json holds, and which of them change together."""

from functools import partial
from typing import Any, NotRequired, TypedDict

from infoshot.core.file_state import FileSet
from infoshot.core.json_file import FileText, parse_record

LABELS, PARQUET, CLASSIFIER = "labels.csv", "labels.parquet", "classifier.safetensors"
CORRECTIONS, REPORT, FACTS = "corrections.csv", "report.html", "run.json"
ANSWER_LOG = "review.jsonl"
FORMAT = "infoshot.run/1"


class RequestFacts(TypedDict):
    """The arguments of the run."""

    examples: FileText | None
    photos: FileText
    backbone: FileText
    method: str
    settings: dict[str, Any]
    threshold: float
    reject_outliers: bool
    prior: dict[str, float] | None
    coverage: NotRequired[float | None]
    target: NotRequired[float | None]
    classes: NotRequired[list[str] | None]
    text_weight: NotRequired[int | None]


class EncoderFacts(TypedDict):
    """The provenance of the features."""

    backbone: FileText
    weights_sha256: str
    transform: str
    infoshot: str


class ExampleFacts(TypedDict):
    """An example of the run."""

    path: str
    file: FileText
    label: str
    sha256: str
    given: bool
    original: NotRequired[str]
    looks_like: NotRequired[str]


class CalibrationFacts(TypedDict):
    """The power of the calibration, and whether it comes from held-out examples."""

    by_examples: bool
    exponent: float


class CoverageFacts(TypedDict):
    """What the prediction sets are based on, and how many have how many classes."""

    asked: float
    held_out: int
    audited: int
    needed: int
    least_probability: float
    mean_size: float
    sizes: dict[str, int]


class TargetFacts(TypedDict):
    """How many labels are expected to be correct at a rate, and how sure that is."""

    asked: float
    chosen: int
    candidates: int
    expected: float | None
    certainty: float | None
    held_out: int
    audited: int


class ReviewFacts(TypedDict):
    """How much of the review's log the labels contain, and what was stated when it was finished."""

    n_entries: int
    statement: NotRequired[dict[str, Any]]


class RunFacts(TypedDict):
    """What run.json holds. ``files`` has the sha256 of the other files of the same state."""

    format: str
    request: RequestFacts
    classes: dict[str, int]
    counts: dict[str, int]
    encoder: EncoderFacts
    text: NotRequired[EncoderFacts]
    cache: FileText
    examples: list[ExampleFacts]
    files: NotRequired[dict[str, str]]
    csv_safe: NotRequired[bool]
    review: NotRequired[ReviewFacts]
    method: NotRequired[dict[str, Any]]
    estimate: NotRequired[dict[str, float] | None]
    calibration: NotRequired[CalibrationFacts]
    thresholds: NotRequired[dict[str, float]]
    coverage: NotRequired[CoverageFacts]
    target: NotRequired[TargetFacts]
    warnings: NotRequired[list[str]]
    environment: NotRequired[dict[str, Any]]


RUN_FILES = FileSet(
    kind="labelling run",
    names=(LABELS, PARQUET, CLASSIFIER, CORRECTIONS, REPORT, FACTS),
    manifest=FACTS,
    parse=partial(
        parse_record, expected=RunFacts, version=FORMAT, what="the description of a labelling run"
    ),
    advice="label the images again",
    optional=(CORRECTIONS,),
    largest={FACTS: 2**26},  # bytes; run.json has some hundred for each example
)
