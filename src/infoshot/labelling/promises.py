"""Add to a decision what the request asks for: prediction sets, and labels that reach a target."""

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from infoshot.labelling.calibrate import calibrate
from infoshot.labelling.decide import CORRECTED, Decision
from infoshot.labelling.evidence import Evidence, collect_evidence
from infoshot.labelling.prediction_sets import choose_sets
from infoshot.labelling.target import choose_confident


def add_promises(decision: Decision, fixed: Mapping[str, str]) -> Decision:
    """Add prediction sets, and report labels as unsure that do not reach the target.

    Parameters
    ----------
    decision
        The labels of all images.
    fixed
        As in :func:`infoshot.labelling.decide.decide_labels`: by digest, the labels of the images
        that a person audited. They are evidence.
    """
    request = decision.request
    solved = ~decision.uncalibrated.isnan().any(-1)
    p = calibrate(decision.uncalibrated[solved], decision.classifier.exponent)
    evidence = collect_evidence(decision.held_out, p.mean(0), *_find_audited(decision, fixed))
    if request.target is not None:
        decision = _keep_target(decision, evidence, request.target)
    return decision if request.coverage is None else _add_sets(decision, evidence, request.coverage)


def _find_audited(decision: Decision, fixed: Mapping[str, str]) -> tuple[Tensor, Tensor]:
    """Return the predictions for audited images, and their classes; copies of one count once."""
    classes, digests = decision.classes, decision.digests
    rows = {digest: number for number, digest in enumerate(digests) if fixed.get(digest) in classes}
    raw = decision.uncalibrated
    numbers = [number for number in rows.values() if not raw[number].isnan().any()]
    truth = [classes.index(fixed[digests[number]]) for number in numbers]
    return raw[numbers], torch.tensor(truth, dtype=torch.int64)


def _keep_target(decision: Decision, evidence: Evidence, rate: float) -> Decision:
    """Report the labels as labelled that reach the target, and the others as unsure."""
    able = [
        number
        for number, label in enumerate(decision.labels)
        if label.status in ("labelled", "unsure") and label.reason != CORRECTED
    ]
    confidence = decision.probabilities[able].amax(-1)
    target = choose_confident(evidence, decision.uncalibrated[able], confidence, rate)
    labels = list(decision.labels)
    for number in able:
        chosen = labels[number].confidence >= target.cutoff
        status, reason = ("labelled", "") if chosen else ("unsure", target.reason)
        labels[number] = dataclasses.replace(labels[number], status=status, reason=reason)
    # New images are sure from the same confidence on.
    classifier = dataclasses.replace(decision.classifier, threshold=min(target.cutoff, 1.0))
    return dataclasses.replace(decision, labels=labels, classifier=classifier, target=target)


def _add_sets(decision: Decision, evidence: Evidence, coverage: float) -> Decision:
    """Add the prediction sets of the images whose label the solver gave."""
    withheld = torch.tensor([not label.label for label in decision.labels])
    p = decision.open_probabilities().masked_fill(withheld.unsqueeze(-1), torch.nan)
    sets = choose_sets(evidence, decision.classifier.exponent, p, coverage)
    return dataclasses.replace(decision, sets=sets)
