"""Options that are given as text, and messages that name options."""

import json

import pytest

from infoshot import DataError, InvalidArgumentError
from infoshot.cli._console import complain
from infoshot.cli._options import name_options, parse_numbers, parse_prior, parse_settings


def test_numbers():
    assert parse_numbers("--shots", "1,5, 10") == [1, 5, 10]
    for text in ("", "1,", "a", "1.5", "1;2"):
        with pytest.raises(InvalidArgumentError) as caught:
            parse_numbers("--shots", text)
        assert str(caught.value) == (
            f"--shots must be whole numbers separated by commas; got '{text}'."
        )


SETTINGS = {
    "temperature=10": {"temperature": 10},
    "temperature = 1.5": {"temperature": 1.5},
    "lr=5e-4": {"lr": 0.0005},
    "class_prior=0.7,0.3": {"class_prior": [0.7, 0.3]},
    "class_prior=[0.7, 0.3]": {"class_prior": [0.7, 0.3]},
    "linearized=False": {"linearized": False},
    "linearized=true": {"linearized": True},
    "tolerance=None": {"tolerance": None},
    "form=gram": {"form": "gram"},
    "tim-adm.n_steps=50": {"tim-adm.n_steps": 50},
    "equation=a=b": {"equation": "a=b"},
}


@pytest.mark.parametrize("text", SETTINGS)
def test_settings(text):
    assert parse_settings([text]) == SETTINGS[text]


def test_later_settings_replace_earlier_ones():
    assert parse_settings(["a=1", "b=2", "a=3"]) == {"a": 3, "b": 2}
    assert parse_settings([]) == {}


@pytest.mark.parametrize("text", ["temperature", "=10", "", "tim-adm.=5"])
def test_wrong_settings_are_refused(text):
    with pytest.raises(
        InvalidArgumentError, match=r"^--set.* look like .*temperature=10"
    ) as caught:
        parse_settings([text])
    assert f"got '{text}'." in str(caught.value)


def test_prior_of_text(tmp_path):
    assert parse_prior("cat=0.7,dog=0.3") == {"cat": 0.7, "dog": 0.3}
    assert parse_prior(" a=b =8, c=2") == {"a=b": 8, "c": 2}
    many = {f"a class with a long name {number}": 1.0 for number in range(99)}
    assert parse_prior(",".join(f"{name}=1" for name in many)) == many


def test_prior_of_a_file(tmp_path):
    path = tmp_path / "prior.json"
    path.write_text(json.dumps({"cat": 8, "größer": 2}), encoding="utf-8")
    assert parse_prior(str(path)) == {"cat": 8, "größer": 2}
    for text in ("{", "[1, 2]", '{"cat": "many"}', '{"cat": null}'):
        path.write_text(text)
        with pytest.raises(DataError, match=r'prior\.json: must be JSON like \{"cat": 0\.7, "dog"'):
            parse_prior(str(path))
    with pytest.raises(DataError, match=r"gone\.json: there is no such file\."):
        parse_prior(str(tmp_path / "gone.json"))


@pytest.mark.parametrize("text", ["", "cat", "cat=", "cat=many", "cat=0.5,dog"])
def test_wrong_priors_are_refused(text):
    with pytest.raises(InvalidArgumentError) as caught:
        parse_prior(text)
    assert str(caught.value) == (
        f"--prior must look like cat=0.7,dog=0.3 or name a JSON file; got '{text}'."
    )


@pytest.mark.parametrize("share", ["0", "-1", "nan", "inf"])
def test_shares_must_be_positive(share):
    with pytest.raises(InvalidArgumentError, match="--prior must give every class a share above 0"):
        parse_prior(f"cat=1,dog={share}")


OPTIONS = {
    "force": "--force", "n_tasks": "--tasks", "tasks": "--tasks", "shard_size": "--shard-size",
    "dtype": "--dtype", "settings": "--set", "n": "--n", "checkpoint": "--checkpoint",
}  # fmt: skip
MESSAGES = {
    "run: contains another run; pass force=True to replace it.":
        "run: contains another run; pass --force to replace it.",
    "n_tasks must be at least 1; got 0.": "--tasks must be at least 1; got 0.",
    "n must be a whole number of at least 1; got 0.":
        "--n must be a whole number of at least 1; got 0.",
    "too large for float16; pass dtype=float32.": "too large for float16; pass --dtype float32.",
    "not a shard of these images with shard_size=30; choose another folder.":
        "not a shard of these images with --shard-size 30; choose another folder.",
    "pass checkpoint=FOLDER, or backbone=NAME.": "pass --checkpoint FOLDER, or backbone=NAME.",
    # Only whole names are replaced, and only where they name an argument.
    "my_force=True and x.force=True": "my_force=True and x.force=True",
    "the photos must differ; n must not.": "the photos must differ; n must not.",
    "force is needed": "force is needed",
    "TimAdm: n_steps must be at least 1": "TimAdm: n_steps must be at least 1",
    "n_shot must be at least 1": "n_shot must be at least 1",
}  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_name_options_instead_of_arguments(message):
    assert name_options(message, OPTIONS) == MESSAGES[message]


def test_messages_stay_without_options():
    for message in MESSAGES:
        assert name_options(message, {}) == message


def test_paths_in_messages_stay_as_they_are():
    message = "data/out=1/a/threshold=3.png: cannot be read; pass force=True to replace it."
    options = {"out": "--out", "threshold": "--threshold", "force": "--force"}
    expected = "data/out=1/a/threshold=3.png: cannot be read; pass --force to replace it."
    assert name_options(message, options) == expected


def test_messages_are_printed_without_emoji(capsys):
    complain("Error", "badnet:four: must be :cat: a network")
    assert capsys.readouterr().err == "Error: badnet:four: must be :cat: a network\n"
