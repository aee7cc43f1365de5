"""Systems by name, their settings, and heads of the user."""

import dataclasses
import re

import pytest

from infoshot import InvalidArgumentError
from infoshot.training.episodic.registry import (
    STARTS,
    SYSTEMS,
    TRAINS,
    make_head,
    resolve_head_settings,
    resolve_system,
)

MINE = "tests.heads:Nearest"


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_every_system_is_described(system):
    assert re.fullmatch(r"[a-z0-9+-]+", system.name)
    assert system.trains in TRAINS
    assert system.starts_from in STARTS
    assert system.needs_init == ("base-trained" in STARTS[system.starts_from])
    for text in (system.title, system.summary, system.reference):
        assert text
        assert not text.endswith(".")
    head = make_head(system.name, dim=8, n_base_classes=6)
    assert (head.dim, head.n_base_classes) == (8, 6)
    assert resolve_head_settings(system.name, {}).keys() == system.head_settings().keys()


def test_systems_are_compared_by_their_fields():
    system = SYSTEMS["protonet"]
    assert dataclasses.replace(system) == system
    assert resolve_system("protonet") is system


def test_head_of_the_user_is_a_system():
    system = resolve_system(MINE)
    assert (system.title, system.summary) == (
        "Nearest",
        "Product with the nearest example, times a factor",
    )
    assert (system.trains, system.starts_from, system.needs_init) == ("network", "scratch", False)
    head = make_head(MINE, 4, 3, {"factor": 5, "sizes": [7, 8]})
    assert (head.factor.item(), head.sizes) == (5.0, (7, 8))
    assert resolve_head_settings(MINE, {"factor": 5}) == {"factor": 5, "sizes": [1, 2]}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("protonte", {}, r"Unknown system 'protonte'. Did you mean 'protonet'\?"),
        (
            "protonet",
            {"temperatures": 1},
            r"'head.temperatures'. Did you mean 'head.temperature'\?",
        ),
        ("protonet", {"temperature": 0}, "protonet: temperature must be a finite number above 0"),
        ("matchnet", {"temperature": "hot"}, "matchnet: temperature must be a finite number"),
        ("tests.heads:torch", {}, "must be a class derived from infoshot.training.episodic.head"),
        ("tests.heads:None_", {}, "has no 'None_'"),
        (MINE, {"factor": 13}, "its head cannot be made; it raised RuntimeError: unlucky"),
        (MINE, {"factor": object()}, "its settings must be plain values"),
        ("tests.heads:Demanding", {}, "needs a value of head.factor, which has no default"),
    ],
)
def test_wrong_names_and_settings_are_one_sentence(name, settings, message):
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        make_head(name, 4, 3, settings)
    assert "\n" not in str(caught.value)
