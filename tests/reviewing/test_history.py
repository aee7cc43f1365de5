"""Every action can be taken back, and the state after any entry can be restored."""

import random

import pytest

from infoshot import InvalidArgumentError
from infoshot.labelling.answer_log import Answer
from infoshot.reviewing.history import History, describe

CAT, DOG, NONE = Answer("cat"), Answer("dog"), Answer("(none)")


@pytest.fixture
def history(tmp_path):
    history = History(tmp_path, {"old": CAT}, 0)
    yield history
    history.close()


def reopen(history, tmp_path):
    """The same history as another process reads it."""
    answers = {"old": CAT}
    for entry in history.entries:
        for change in entry.changes:
            answers[change.path] = change.after
    known = {path: answer for path, answer in answers.items() if answer}
    return History(tmp_path, known, 0)


def test_undo_takes_back_one_action_after_the_other(history):
    history.record("label", answers={"a": CAT, "b": CAT})
    history.record("label", answers={"a": DOG, "old": DOG})
    assert history.answers == {"a": DOG, "b": CAT, "old": DOG}
    history.undo()
    assert history.answers == {"a": CAT, "b": CAT, "old": CAT}
    history.undo()
    assert history.answers == {"old": CAT}
    with pytest.raises(InvalidArgumentError, match="nothing to undo"):
        history.undo()


def test_what_was_undone_can_be_restored(history):
    history.record("label", answers={"a": CAT})
    history.record("reject", answers={"a": NONE})
    history.undo(to=0)
    assert history.answers == {"old": CAT}
    history.undo(to=2)  # redo both
    assert history.answers == {"old": CAT, "a": NONE}
    history.undo()
    assert history.answers == {"old": CAT, "a": CAT}
    for wrong in (-1, 99):
        with pytest.raises(InvalidArgumentError, match="to must be an entry from 0 to"):
            history.undo(to=wrong)


def test_random_actions_can_be_restored_to_any_point(history, tmp_path):
    """The reference: a list of all states."""
    dice = random.Random(0)
    states = [(dict(history.answers), set(history.skipped))]
    for _ in range(200):
        if dice.random() < 0.3 and len(states) > 1:
            to = dice.randrange(len(states))
            history.undo(to=to)
            states.append(states[to])
        else:
            answers = {f"p{dice.randrange(6)}": dice.choice([CAT, DOG, NONE, None])}
            skip = [f"p{dice.randrange(6)}"] if dice.random() < 0.3 else []
            history.record("label", answers=answers, skip=skip, unskip=answers)
            states.append((dict(history.answers), set(history.skipped)))
        assert (history.answers, history.skipped) == states[-1]
    again = reopen(history, tmp_path)
    assert (again.answers, again.skipped) == states[-1]
    assert [entry.n for entry in again.done] == [entry.n for entry in history.done]
    again.close()


def test_goals_are_not_undone(history):
    history.record("goal", facts={"goal": 0.9})
    history.record("label", answers={"a": CAT})
    history.undo()
    assert history.goal == 0.9
    with pytest.raises(InvalidArgumentError, match="nothing to undo"):
        history.undo()


def test_names_of_classes_follow_several_renamings(history):
    history.record("rename", facts={"name": "cat", "to": "tom"})
    history.record("merge", facts={"name": "tom", "to": "dog"})
    assert history.renamed(0) == {"cat": "dog", "tom": "dog"}
    assert history.renamed(1) == {"tom": "dog"}
    history.undo()
    assert history.renamed(0) == {"cat": "tom"}
    history.record("add", facts={"name": "eel"})
    assert history.added_classes == ["eel"]
    history.undo()
    assert history.added_classes == []


def test_entries_are_described(history):
    actions = [
        ("label", {"answers": {"a": CAT, "b": CAT}}, "2 photos labelled cat"),
        ("accept", {"answers": {"a": DOG, "b": NONE}}, "2 photos confirmed as 2 classes"),
        ("reject", {"answers": {"c": NONE}}, "1 photo rejected as none of the classes"),
        ("clear", {"answers": {"c": None}}, "1 photo without an answer again"),
        ("skip", {"skip": ["d"]}, "1 photo skipped"),
        ("merge", {"facts": {"name": "cat", "to": "dog"}}, "class cat merged into dog"),
        ("goal", {"facts": {"goal": 0.95}}, "goal set to 95%"),
    ]
    for action, given, words in actions:
        assert describe(history.record(action, **given)) == words
    assert describe(history.undo()) == "back to the state after action 5"
