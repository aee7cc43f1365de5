"""What an audit promises about the whole pool and about parts of it."""

import dataclasses

import numpy as np
import pytest

from infoshot.core.errors import InvalidArgumentError, ShapeError
from infoshot.labelling.calibrate import Estimate
from infoshot.reviewing.assessment import Statement
from infoshot.reviewing.audit import Audit, Round
from infoshot.reviewing.confidence_sequence import bound_correct
from infoshot.reviewing.promise import PART_SHARES, assess

FIRST = Round()


def _audit(n_photos, n_audited=0, wrong=(), answered=(), round=FIRST, confidence=None):
    """An audit of photos 0, 1, 2, ... in this order."""
    numbers = np.arange(n_photos)
    audited = numbers < n_audited
    return Audit(
        order=numbers,
        audited=audited,
        correct=audited & ~np.isin(numbers, wrong),
        answered=np.isin(numbers, answered),
        confidence=np.full(n_photos, 0.5) if confidence is None else np.asarray(confidence),
        round=round,
    )


def test_whole_pool_gets_half_of_the_share_of_the_round():
    for number in (1, 2, 5):
        expected = bound_correct(500, 120, 118, 0.05 / (number * (number + 1)) / 2)
        audit = _audit(500, 120, wrong=(3, 7), round=Round(number))
        promise = assess(audit, 0.95).promise
        assert promise.low == expected / 500


def test_answered_photos_count_as_correct_without_being_asked():
    asked = assess(_audit(300, 80), 0.95)
    partly = _audit(300, 80, answered=range(20, 60))
    audited = partly.audited & ~partly.answered
    free = assess(dataclasses.replace(partly, audited=audited), 0.95)
    assert free.promise.low == asked.promise.low
    assert (asked.n_audited, free.n_audited) == (80, 40)
    assert free.estimate.n == 80


def test_sample_ends_at_the_first_photo_that_nobody_answered():
    audit = _audit(300, 80)
    audit.audited[30] = False
    assert assess(audit, 0.95).n_audited == 30


def test_audited_photo_counts_by_the_solver_after_it_is_corrected():
    before = assess(_audit(300, 80, wrong=[5]), 0.95)
    after = assess(_audit(300, 80, wrong=[5], answered=[5]), 0.95)
    assert after == before
    assert after.n_correct == 79


def test_known_labels_bound_the_accuracy_without_an_audit():
    assessment = assess(_audit(100, answered=range(1, 97)), 0.95)
    assert assessment.promise.low == 0.96
    assert assessment.promise.met


@pytest.mark.parametrize("n_photos", [1, 5, 40])
@pytest.mark.parametrize("goal", [0.5, 0.95, 1.0])
def test_small_pools(n_photos, goal):
    nothing = assess(_audit(n_photos), goal)
    assert nothing.promise.low == 0.0
    assert not nothing.promise.met
    assert nothing.part is None
    every = assess(_audit(n_photos, n_photos, wrong=[0]), goal)
    assert every.certain
    assert every.promise.low == 1.0
    assert every.estimate.low == every.estimate.high == 1 - 1 / n_photos


def test_goal_of_every_label_takes_every_photo():
    promise = assess(_audit(40, 39), 1.0).promise
    assert not promise.met
    assert promise.more is None
    assert assess(_audit(40, 40), 1.0).promise.met


def test_forecast_is_right_when_its_answers_come():
    audit = _audit(1000, 30, answered=range(0, 1000, 4))
    audit.audited[::4] = False
    more = assess(audit, 0.95).promise.more
    asked = np.flatnonzero(~audit.known)
    for n in (more - 1, more):
        grown = audit.audited.copy()
        grown[asked[:n]] = True
        later = dataclasses.replace(audit, audited=grown, correct=grown)
        assert assess(later, 0.95).promise.met == (n == more)


def test_forecast_before_the_first_answer_uses_held_out_examples():
    optimistic = assess(_audit(6000), 0.95)
    expected = assess(_audit(6000), 0.95, held_out=Estimate(0.98, 0.9, 1.0, 50))
    assert optimistic.estimate is None
    assert optimistic.promise.more == 99
    assert expected.estimate.source == "examples"
    assert expected.promise.more > 2 * optimistic.promise.more
    hopeless = assess(_audit(6000), 0.95, held_out=Estimate(0.9, 0.8, 0.95, 50))
    assert hopeless.promise.more is None


def test_forecast_stops_where_the_estimate_is_not_above_the_goal():
    assert assess(_audit(1000, 20, wrong=[1]), 0.95).promise.more is None
    assert assess(_audit(1000, 40, wrong=[1]), 0.95).promise.more > 100


def test_part_is_the_largest_whose_own_bound_meets_the_goal():
    rng = np.random.default_rng(3)
    confidence = rng.permutation(2000) / 2000
    wrong = np.flatnonzero(confidence[:600] < 0.3)
    assessment = assess(_audit(2000, 600, wrong=wrong, confidence=confidence), 0.95)
    assert not assessment.promise.met
    met = {}
    for share in PART_SHARES:
        own = confidence[:600] >= 1 - share
        n_correct = int(own.sum()) - int(np.isin(np.flatnonzero(own), wrong).sum())
        bound = bound_correct(round(2000 * share), int(own.sum()), n_correct, 0.025 / 2 / 9)
        met[share] = bound / (2000 * share) if bound >= 0.95 * 2000 * share else None
    share = next(share for share in PART_SHARES if met[share])
    part = assessment.part
    assert part.threshold == pytest.approx(1 - share)
    assert part.low == met[share]
    accepted = (confidence >= part.threshold) | (np.arange(2000) < 600)
    assert part.n == accepted.sum()
    assert part.n_remaining == 2000 - part.n
    assert part.share == part.n / 2000


def test_part_promises_for_the_whole_pool_if_a_person_labelled_all_others():
    confidence = np.where(np.arange(2000) < 60, 0.1, 0.9)
    assessment = assess(_audit(2000, 260, wrong=range(60), confidence=confidence), 0.95)
    assert assessment.part is None
    assert assessment.promise.met
    assert assessment.promise.low == bound_correct(1940, 200, 200, 0.0125 / 9) / 1940
    assert assessment.estimate.accuracy == 1.0
    assert assessment.estimate.low > assessment.promise.low


def test_part_contains_answered_photos_whatever_their_confidence():
    confidence = np.linspace(1, 0, 2000)
    order = np.random.default_rng(0).permutation(2000)
    audited = np.zeros(2000, dtype=bool)
    audited[order[:600]] = True
    audit = Audit(order, audited, confidence > 0.3, np.arange(2000) >= 1900, confidence)
    part = assess(audit, 0.95).part
    accepted = (confidence >= part.threshold) | audit.audited | audit.answered
    assert part.n == accepted.sum()


def test_parts_include_all_photos_at_their_threshold():
    confidence = np.where(np.arange(1000) % 2, 1.0, 0.2)
    audit = _audit(1000, 500, wrong=range(0, 500, 6), confidence=confidence)
    part = assess(audit, 0.97).part
    assert part.threshold == 1.0
    assert part.n_remaining == 250


def test_photos_without_a_label_belong_to_no_part():
    confidence = np.where(np.arange(1000) % 2, 0.9, np.nan)
    audit = _audit(1000, 500, wrong=range(0, 500, 2), confidence=confidence)
    assert assess(audit, 0.95).part.threshold == 0.9


def test_all_promises_together_are_kept():
    """A person looks after every answer and stops at the first promise; all of them are false."""
    rng = np.random.default_rng(0)
    n_photos, n_broken, n_reviews = 150, 0, 80
    confidence = np.arange(n_photos) / n_photos
    for _ in range(n_reviews):
        right = np.ones(n_photos, dtype=bool)
        right[::7] = False  # at least 13 % errors in every part
        order = rng.permutation(n_photos)
        audited = np.zeros(n_photos, dtype=bool)
        for number in order[:100]:
            audited[number] = True
            assessment = assess(
                Audit(order, audited, right, np.zeros_like(audited), confidence), 0.88
            )
            if assessment.promise.met or assessment.part:
                n_broken += 1
                break
    assert n_broken <= 0.05 * n_reviews


def test_changed_labels_promise_nothing_until_the_next_answer():
    assessment = assess(_audit(300, 200), 0.95, held_out=Estimate(0.98, 0.9, 1.0, 50), changed=True)
    assert assessment.promise is None
    assert assessment.part is None
    assert assessment.estimate.source == "examples"
    assert "changed" in assessment.sentences[0]


def test_round_begins_at_the_first_answer_after_a_change():
    assert Round.find([]) == Round.find([4]) == Round.find([4, 4]) == Round()
    assert Round.find([4, 4, 7, 7, 4]) == Round(number=3, n_before=4)


def test_later_round_takes_the_better_of_two_samples():
    """All 150 photos with 10 errors, or 100 photos after 50 that a person labelled."""
    share = 0.05 / 6 / 2 / 2
    late = assess(_audit(500, 150, wrong=range(10), round=Round(2, 50)), 0.95)
    assert late.promise.low == (50 + bound_correct(450, 100, 100, share)) / 500
    assert late.estimate.accuracy == 1.0
    assert (late.n_audited, late.n_correct) == (150, 140)
    early = assess(_audit(500, 150, wrong=[3], round=Round(2, 145)), 0.95)
    assert early.promise.low == bound_correct(500, 150, 149, share) / 500
    assert early.estimate.accuracy == 149 / 150


def test_photos_answered_before_the_round_count_with_it():
    """Photos 0 to 49 of the order were audited or answered before the round."""
    audit = _audit(500, 150, wrong=range(0, 50, 2), answered=range(1, 50, 2), round=Round(2, 25))
    audit.audited[1:50:2] = False
    expected = (49 + bound_correct(451, 101, 101, 0.05 / 6 / 2 / 2)) / 500
    assert assess(audit, 0.95).promise.low == expected


def test_forecast_of_a_later_round_is_right_when_its_answers_come():
    audit = _audit(1000, 70, wrong=range(12), round=Round(2, 60))
    more = assess(audit, 0.95).promise.more
    for n in (more - 1, more):
        later = _audit(1000, 70 + n, wrong=range(12), round=Round(2, 60))
        assert assess(later, 0.95).promise.met == (n == more)


def test_sentences_of_every_situation():
    def say(*arguments, **options):
        return assess(*arguments, **options).sentences

    assert say(_audit(0), 0.95) == ["There are no photos to audit."]
    assert say(_audit(40, 40), 0.95) == ["A person answered all 40 photos."]
    assert say(_audit(5950), 0.95) == [
        "No photo is audited yet.",
        "The goal of 95 % takes about 99 answers if all labels are correct.",
    ]
    assert say(_audit(5950), 0.95, held_out=Estimate(0.99, 0.9, 1.0, 50))[1].endswith(
        "answers at the error rate that the held-out examples suggest (1 %)."
    )
    assert (
        "review some photos first"
        in (say(_audit(5950), 0.95, held_out=Estimate(0.91, 0.8, 0.95, 50))[1])
    )
    assert "nearly every photo" in say(_audit(5), 0.95)[1]
    met = say(_audit(5950, 250, wrong=[7, 9]), 0.95)
    low = bound_correct(5950, 250, 248, 0.0125) * 1000 // 5950 / 10
    assert met == [
        f"With 95 % confidence at least {low} % of the 5,950 labels are correct "
        "(250 photos audited, 2 errors).",
        "The goal of 95 % is reached.",
    ]
    assert say(_audit(5950, 1), 0.95)[1] == (
        "The goal of 95 % takes about 98 more audit answers if the error rate stays as it is."
    )
    assert say(_audit(5950, 20, wrong=range(5)), 0.95)[1:] == [
        "At this error rate 95 % cannot be promised for all photos.",
        "Nor can it be promised for a part of them so far: review or audit more photos.",
    ]


def test_sentences_about_a_part():
    confidence = np.where(np.arange(1000) % 2, 0.914, 0.2)
    audit = _audit(1000, 500, wrong=range(0, 500, 2), confidence=confidence)
    sentences = assess(audit, 0.95).sentences
    assert sentences[2].endswith(
        "are correct among 750 photos: those with a confidence of at least 0.914 and those that a "
        "person answered."
    )
    assert sentences[3] == "250 photos remain to be checked by eye."


def test_bounds_are_rounded_down_in_sentences():
    assessment = assess(_audit(1000, 200), 0.95)
    promise = dataclasses.replace(assessment.promise, low=0.95999)
    assert "at least 95.9 %" in dataclasses.replace(assessment, promise=promise).sentences[0]


def test_assessment_and_statement_have_the_fields_of_the_interface():
    assessment = assess(_audit(500, 200, wrong=[3]), 0.95)
    data = assessment.as_dict()
    assert data["audit"] == {"n": 200, "n_correct": 199, "round": 1}
    assert data["promise"] == {"low": assessment.promise.low, "met": True, "more": 0}
    assert set(data["estimate"]) == {"source", "accuracy", "low", "high", "n"}
    assert data["part"] is None
    statement = Statement.make(assessment, "2026-11-16T12:00:00Z").as_dict()
    assert statement == {
        "time": "2026-11-16T12:00:00Z",
        "goal": 0.95,
        "confidence": 0.95,
        "n_audited": 200,
        "n_correct": 199,
        "accuracy": 0.995,
        "low": assessment.promise.low,
        "part": None,
        "sentence": assessment.sentences[0],
    }


def test_statement_without_an_audit_promises_nothing():
    statement = Statement.make(assess(_audit(500), 0.95), "2026-11-16T12:00:00Z")
    assert statement.low is None
    assert statement.accuracy is None
    assert "no accuracy is promised" in statement.sentence


def test_statement_names_the_part():
    confidence = np.where(np.arange(1000) % 2, 0.914, 0.2)
    audit = _audit(1000, 500, wrong=range(0, 500, 2), confidence=confidence)
    statement = Statement.make(assess(audit, 0.95), "2026-11-16T12:00:00Z")
    assert statement.part.n == 750
    assert "among 750 photos" in statement.sentence
    assert set(statement.as_dict()["part"]) == {"share", "n", "threshold", "low", "n_remaining"}


@pytest.mark.parametrize("goal", [0.0, 1.5, float("nan")])
def test_goal_is_checked(goal):
    with pytest.raises(InvalidArgumentError, match="goal must be"):
        assess(_audit(10), goal)


def test_shapes_are_checked():
    with pytest.raises(ShapeError, match=r"confidence must have shape \(10,\)"):
        _audit(10, confidence=np.zeros(9))
