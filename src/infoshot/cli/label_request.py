"""What ``infoshot label`` makes of its options, and what it prints in the end."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from infoshot.cli._console import SpokenProgress, complain, print_table, progress_bar, stdout
from infoshot.cli._options import methods_with_settings
from infoshot.cli.prior import class_shares
from infoshot.core.errors import InvalidArgumentError
from infoshot.labelling.api import Finished, Watcher
from infoshot.labelling.decide import DEFAULT_METHOD, METHOD_WITH_PRIOR, Request
from infoshot.labelling.photo import PhotoLabel


def label_request(
    examples: Path,
    photos: Path,
    *,
    backbone: str,
    method: str | None,
    settings: Sequence[str],
    threshold: float,
    reject_outliers: bool,
    prior: str | None,
) -> Request:
    """The options as a request, each checked by itself."""
    if not 0 <= threshold <= 1:
        raise InvalidArgumentError(f"--threshold must be between 0 and 1; got {threshold:g}.")
    name = method or (METHOD_WITH_PRIOR if prior else DEFAULT_METHOD)
    chosen, *others = methods_with_settings(name, settings)
    if others:
        raise InvalidArgumentError(f"--method must be one method; got '{name}'.")
    return Request(
        examples=str(examples),
        photos=str(photos),
        backbone=_absolute(backbone),
        method=chosen.name,
        settings=chosen.solver.settings(),
        threshold=threshold,
        reject_outliers=reject_outliers,
        prior=class_shares(prior) if prior else None,
    )


@contextmanager
def watched() -> Iterator[Watcher]:
    """Draw a progress bar for whoever reports to the watcher; without a terminal, say phases."""
    with progress_bar("images") as progress:
        bar = progress.add_task("", total=None)
        spoken = SpokenProgress(shown=progress.disable)

        def phase(name: str, total: int) -> None:
            progress.update(bar, description=name, total=total or None, completed=0)
            if total:
                spoken.begin(f"{name} {total:,} {'image' if total == 1 else 'images'}", total)

        def advance(n_done: int) -> None:
            progress.advance(bar, n_done)
            spoken.advance(n_done)

        yield Watcher(phase, advance)


def print_finished(done: Finished, out: Path) -> None:
    """What came out, in a few lines."""
    outcome = done.outcome
    counts = Counter(photo.label for photo in outcome.photos if photo.label)
    print_table(["class", "photos"], [[name, f"{counts[name]:,}"] for name in outcome.classes])
    for sentence in done.warnings:
        complain("Warning", sentence)
    console, words = stdout(), status_counts(outcome.photos)
    speed = f" ({done.images_per_second:,.0f} images/s)" if done.images_per_second else ""
    n_photos = len(outcome.photos)
    noun = "photo" if n_photos == 1 else "photos"
    console.print(f"{n_photos:,} {noun}{speed}: {words}.", soft_wrap=True)
    if len(outcome.held_out):
        share, low, high = outcome.held_out.accuracy()
        console.print(
            f"Of {len(outcome.held_out)} examples that were held out, {share:.0%} came out right "
            f"(95% interval {low:.0%} to {high:.0%}).",
            soft_wrap=True,
        )
    for name in done.exports:
        console.print(f"Exported: {out / name}", soft_wrap=True)
    console.print(f"Look at {out / 'report.html'}; labels: {out / 'labels.csv'}", soft_wrap=True)


def status_counts(photos: Sequence[PhotoLabel]) -> str:
    """How many photos are labelled, unsure and so on, in words."""
    statuses = Counter(photo.status for photo in photos)
    return ", ".join(f"{n:,} {status}" for status, n in statuses.most_common())


def _absolute(backbone: str) -> str:
    """The encoder, so that it is found from another folder too."""
    kind, colon, name = backbone.partition(":")
    if colon and kind in ("hf", "onnx"):
        return f"{kind}:{Path(name).absolute()}" if Path(name).exists() else backbone
    return str(Path(backbone).absolute()) if Path(backbone).exists() else backbone
