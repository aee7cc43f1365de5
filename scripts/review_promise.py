"""Count how often the accuracy that a review promises is true.

infoshot extract --dataset mini-imagenet --root DIR --split val --backbone efficientnet-lite0
--dtype float32 --out val.safetensors
python scripts/review_promise.py src/infoshot/assets/mini_test_resnet18.safetensors val.safetensors
--out results/review_promise.json

A simulated person with the true labels reviews pools of real features. Each pool has 5 to 10 random
classes, balanced or with class proportions from a Dirichlet distribution, 300 to 800 photos and
five examples per class. The person answers batches of photos, the pool is solved again by the
method of `infoshot label`, the person audits some photos, looks at the promise after every answer,
and stops at the first promise of 95 %: a third of the persons for the whole pool only, a third also
for half of the pool, a third for any part of it.
Persons who follow the audit review the classes in which the audit found errors, so their
corrections depend on the audit.

Further reviews are simulated on arrays alone, with labels that change at random around the goal:
`near` with an accuracy from 94 to 99 % and an informative confidence, `below` with an accuracy just
below the goal in the whole pool and a confidence that says nothing, so that every promise for the
whole pool and many for parts are false. Here photos that were audited in earlier rounds have the
labels of the person, and those of the last round still have the labels of the solver.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoshot.core.environment import environment
from infoshot.core.types import FeatureTable, TaskBatch
from infoshot.features import read_features
from infoshot.labelling.classifier import prepare_features
from infoshot.labelling.decide import choose_suggestions
from infoshot.reviewing.assessment import Assessment
from infoshot.reviewing.audit import Audit, Round
from infoshot.reviewing.promise import assess
from infoshot.solvers import METHODS, solve

GOAL = 0.95
SHOTS = 5
SHARE_OF_SKEWED, CONCENTRATION = 0.5, 2.0
FIRST_LOOK = 8  # audit answers before a person gives up on a goal that seems out of reach
ORDERS = ("suggested", "doubtful", "where the audit found errors")
METHOD = METHODS["tim-auto"]


@dataclass(eq=False)
class Pool:
    """Photos with true labels, and examples."""

    features: torch.Tensor
    truth: np.ndarray
    example_features: torch.Tensor
    example_labels: np.ndarray
    balanced: bool

    def solve(self, answered: np.ndarray) -> torch.Tensor:
        """Return the probabilities of all photos, given the answers."""
        z_sup = prepare_features(
            torch.cat((self.example_features, self.features[answered])), METHOD, None
        )
        z_qry = prepare_features(self.features[~answered], METHOD, None)
        y_sup = torch.from_numpy(np.concatenate((self.example_labels, self.truth[answered])))
        n_way = int(self.example_labels.max()) + 1
        tasks = TaskBatch(z_sup.unsqueeze(0), y_sup.unsqueeze(0), z_qry.unsqueeze(0), n_way)
        probabilities = torch.eye(n_way)[self.truth]
        probabilities[~answered] = solve(METHOD.solver, tasks).probabilities[0].float()
        return probabilities


def draw_pool(table: FeatureTable, rng: np.random.Generator) -> Pool:
    """Draw classes, class sizes, examples and photos."""
    balanced = bool(rng.random() >= SHARE_OF_SKEWED)
    n_way, n_photos = int(rng.integers(5, 11)), int(rng.integers(300, 801))
    shares = np.full(n_way, 1 / n_way) if balanced else rng.dirichlet([CONCENTRATION] * n_way)
    labels = table.labels.numpy()
    photos, examples = [], []
    for label, share in zip(rng.permutation(labels.max() + 1), shares, strict=False):
        own = rng.permutation(np.flatnonzero(labels == label))
        examples.append(own[:SHOTS])
        photos.append(own[SHOTS : SHOTS + max(1, round(share * n_photos))])
    return Pool(
        table.features[np.concatenate(photos)],
        np.repeat(np.arange(n_way), [len(own) for own in photos]),
        table.features[np.concatenate(examples)],
        np.repeat(np.arange(n_way), SHOTS),
        balanced,
    )


@dataclass(frozen=True)
class Person:
    """How a person reviews."""

    order: str
    n_batch: int
    n_audits: int
    least_share: float  # of the pool, that must be promised

    def is_content(self, assessment: Assessment) -> bool:
        """Whether the person stops."""
        promise, part = assessment.promise, assessment.part
        return bool(promise and promise.met) or bool(part and part.share >= self.least_share)


@dataclass(eq=False)
class Review:
    """The state of one review."""

    pool: Pool
    person: Person
    order: np.ndarray
    versions: list[int] = field(default_factory=list)
    n_solves: int = 0

    def __post_init__(self) -> None:
        self.answered, self.audited = np.zeros((2, len(self.order)), dtype=bool)
        self.solve()

    def solve(self) -> None:
        """Solve the pool again."""
        self.probabilities = self.pool.solve(self.answered)
        self.n_solves += 1
        self.predicted = self.probabilities.argmax(-1).numpy()
        self.confidence = self.probabilities.amax(-1).numpy()
        self.correct = self.predicted == self.pool.truth

    def choose_batch(self) -> list[int]:
        """Choose the photos to answer next."""
        hidden = torch.from_numpy(self.answered | self.audited)
        if self.person.order == "where the audit found errors":
            missed = self.predicted[self.audited & ~self.correct]
            if len(missed):
                others = torch.from_numpy(~np.isin(self.predicted, missed))
                hidden = hidden | others if not (hidden | others).all() else hidden
        probabilities = self.probabilities.masked_fill(hidden.unsqueeze(-1), torch.nan)
        n = min(self.person.n_batch, int((~hidden).sum()))
        if self.person.order == "suggested":
            known = torch.cat((self.pool.example_features, self.pool.features[self.answered]))
            return choose_suggestions(self.pool.features, probabilities, known, n)
        best = probabilities.topk(2, dim=-1).values
        margin = (best[:, 0] - best[:, 1]).nan_to_num(torch.inf)
        return margin.topk(n, largest=False).indices.tolist()

    def audit(self) -> Iterator[Assessment]:
        """Audit photos one after another and yield what is promised after each answer."""
        for number in self.order[~(self.answered | self.audited)[self.order]]:
            self.audited[number] = True
            self.versions.append(self.n_solves)
            yield self.look()

    def look(self) -> Assessment:
        """Look at what is promised now."""
        audit = Audit(
            order=self.order,
            audited=self.audited,
            correct=self.correct & self.audited,
            answered=self.answered,
            confidence=self.confidence,
            round=Round.find(self.versions),
        )
        return assess(audit, GOAL)

    def run(self) -> Assessment:
        """Review and audit in turns until the person is content."""
        while True:
            self.answered[self.choose_batch()] = True
            if (self.answered | self.audited).all():
                return self.look()
            self.solve()
            for n, assessment in enumerate(self.audit(), 1):
                if self.person.is_content(assessment):
                    return assessment
                hopeless = assessment.promise is None or assessment.promise.more is None
                if n == self.person.n_audits or (hopeless and n >= FIRST_LOOK):
                    break

    def report(self, assessment: Assessment) -> dict[str, Any]:
        """Compare the promise with the truth."""
        known = self.answered | self.audited
        kind, promised = "whole", np.ones_like(known)
        if assessment.certain:
            kind = "certain"
        elif assessment.part is not None and not assessment.promise.met:
            kind, promised = "part", known | (self.confidence >= assessment.part.threshold)
        return {
            "kind": kind,
            "order": self.person.order,
            "balanced": self.pool.balanced,
            "n_photos": len(known),
            "n_promised": int(promised.sum()),
            "low": assessment.part.low if kind == "part" else assessment.promise.low,
            "accuracy": float((known | self.correct)[promised].mean()),
            "n_answered": int(self.answered.sum()),
            "n_audited": int(self.audited.sum()),
            "n_rounds": assessment.round,
        }


def review_features(table: FeatureTable, rng: np.random.Generator) -> dict[str, Any]:
    """Simulate one review of real features."""
    pool = draw_pool(table, rng)
    person = Person(
        order=str(rng.choice(ORDERS)),
        n_batch=int(rng.integers(20, 151)),
        n_audits=int(rng.integers(20, 101)),
        least_share=float(rng.choice((1.0, 0.5, 0.0))),
    )
    review = Review(pool, person, rng.permutation(len(pool.truth)))
    start = float(review.correct.mean())
    return {"accuracy_at_start": start, **review.report(review.run())}


def review_arrays(kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """Simulate one review on arrays: labels change at random after 10 to 60 audit answers each."""
    n = int(rng.integers(100, 501))
    nobody, audited = np.zeros((2, n), dtype=bool)
    order, difficulty, versions = rng.permutation(n), rng.random(n), []
    for version in range(5):
        early = audited.copy()
        if kind == "near":
            rate = rng.uniform(0.01, 0.06)
            correct = rng.random(n) >= 3 * rate * difficulty**2
            confidence = 1 - difficulty + 0.2 * rng.random(n)
        else:
            candidates, confidence = rng.permutation(n), rng.random(n)
            n_wrong = np.cumsum(~early[candidates])
            correct = np.ones(n, dtype=bool)
            correct[candidates[n_wrong <= int((1 - GOAL) * n) + 1]] = False
        for number in order[~audited[order]][: int(rng.integers(10, 61))]:
            audited[number] = True
            versions.append(version)
            audit = Audit(order, audited, correct, nobody, confidence, Round.find(versions))
            assessment = assess(audit, GOAL)
            if assessment.certain:
                return {"kind": "certain"}
            if assessment.promise.met:
                return {"kind": "whole", "accuracy": float((correct | early).mean())}
            if assessment.part:
                own = confidence >= assessment.part.threshold
                return {"kind": "part", "accuracy": float((correct | early)[own].mean())}
    return {"kind": "none"}


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count promises and how many of them were true, for the whole pool and for parts."""
    summary: dict[str, Any] = {"reviews": len(rows)}
    n_false = 0
    for kind in ("whole", "part"):
        own = [row for row in rows if row["kind"] == kind]
        n_true = sum(row["accuracy"] >= GOAL - 1e-9 for row in own)
        n_false += len(own) - n_true
        summary[kind] = {"promises": len(own), "true": n_true}
        if own and "n_audited" in own[0]:
            for name in ("n_photos", "n_promised", "n_answered", "n_audited", "n_rounds"):
                summary[kind][f"median_{name}"] = float(np.median([row[name] for row in own]))
    summary["false_share_of_reviews"] = n_false / len(rows)
    return summary


def main() -> None:
    """Run all simulations and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--reviews", type=int, default=200)
    parser.add_argument("--array-reviews", type=int, default=800)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start, rows = time.perf_counter(), []
    for path in options.features:
        table = read_features(path)
        backbone = table.provenance["backbone"]
        for seed in range(options.reviews):
            result = review_features(table, np.random.default_rng(seed))
            rows.append({"features": backbone, "seed": seed, **result})
            print(f"{time.perf_counter() - start:6.0f} s", rows[-1], flush=True)
    half = options.array_reviews // 2
    arrays = {
        kind: summarise([review_arrays(kind, np.random.default_rng(s)) for s in range(half)])
        for kind in ("near", "below")
    }
    groups = {"all": rows}
    for name in ("features", "balanced", "order"):
        for value in sorted({row[name] for row in rows}):
            groups[f"{name}: {value}"] = [row for row in rows if row[name] == value]
    report = {
        "goal": GOAL,
        "confidence": 0.95,
        "features": [path.name for path in options.features],
        "seconds": round(time.perf_counter() - start),
        "reviews": {name: summarise(own) for name, own in groups.items()},
        "arrays": arrays,
        "environment": environment(),
        "rows": rows,
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({**report, "rows": None, "environment": None}, indent=1))


if __name__ == "__main__":
    main()
