"""The order of families on synthetic accuracies: pairs of networks, backbones, exceptions."""

from types import SimpleNamespace

import pytest
import torch

from infoshot.reproduction.family_findings import check_families, compare_families
from infoshot.reproduction.report_tables import comparison_table, family_table
from infoshot.solvers import METHODS
from tests.reproduction.synthetic_results import make_results, source, system_run

TASKS = 8 * torch.randn(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
NOISE = torch.randn(300, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
NOISE -= NOISE.mean()
MEANS = {
    "SimpleShot": 60.0, "TIM-ADM": 70.0, "TIM-GD": 71.0, "Prototype": 52.0,
    "ProtoNet": 55.0, "ProtoNet + T": 57.0, "FEAT": 63.0, "TPN": 61.0, "Distill": 62.0,
}  # fmt: skip


def _choose(changes=None, shift=0.0):
    """Return accuracies whose hard tasks are the same for all systems."""
    means = {**MEANS, **(changes or {})}
    return lambda cell: means.get(cell.name, 50.0) + shift + TASKS + NOISE * len(cell.name) / 4


def _find(folder, chosen):
    found = check_families(make_results(folder, chosen, ["table1"]))
    return {(item.statement, item.group): item for item in found}


@pytest.fixture
def runs():
    return [
        system_run("protonet", "mini-imagenet", "resnet18", adds_queries=True),
        system_run("feat", "mini-imagenet", "resnet12"),
        system_run("tpn", "mini-imagenet", "resnet18"),
    ]


def test_the_report_says_where_the_order_does_not_hold(tmp_path, runs):
    found = _find(tmp_path, dict.fromkeys([source("mini-imagenet"), *runs], _choose()))
    group = "mini-ImageNet"
    below = found["1-shot: inductive meta-learning is below SimpleShot", group]
    assert below.verdict == "does not hold"
    assert below.numbers.startswith("holds for 1 of 2: ProtoNet (ResNet-18) 5.00 ± 0.06")
    assert (
        "does not hold for 1 of 2: FEAT (ResNet-12 against ResNet-18) -3.00 ± 0.18" in below.numbers
    )
    tim = found["5-shot: meta-learning is below TIM-ADM", group]
    assert (tim.verdict, tim.numbers) == ("holds", "holds for 4 of 4")
    assert found["5-shot: SimpleShot or Distill is below TIM-GD", group].verdict == "holds"
    gain = found["1-shot: a system with confident queries (+T) is above the one without", group]
    assert gain.verdict == "holds"
    assert gain.numbers.startswith("holds for 1 of 1: ProtoNet + T (ResNet-18) 2.00 ± 0.12")
    assert found["5-shot: ProtoNet is above prototypes of base training", group].verdict == "holds"
    assert not [text for text, _ in found if "below Distill" in text]  # it did not run


def test_distill_is_a_network_of_its_own(tmp_path, runs, monkeypatch):
    monkeypatch.setitem(METHODS, "distill", METHODS["prototype"])
    distill = source("mini-imagenet", "resnet12", recipe="distilled")
    found = _find(tmp_path, dict.fromkeys([source("mini-imagenet"), distill, *runs], _choose()))
    below = found["5-shot: inductive meta-learning is below Distill", "mini-ImageNet"]
    # The one of its own backbone first, else one of the family.
    assert "ProtoNet (ResNet-18 against ResNet-12) 7.00" in below.numbers
    assert "does not hold for 1 of 2: FEAT (ResNet-12) -1.00" in below.numbers
    tim = found["5-shot: SimpleShot or Distill is below TIM-ADM", "mini-ImageNet"]
    assert tim.numbers.startswith("holds for 2 of 2")


def test_all_pairs_of_networks_must_agree(tmp_path, runs):
    protonet = runs[0]
    again = system_run("protonet", "mini-imagenet", "resnet18", number=1, adds_queries=True)
    chosen = {source("mini-imagenet"): _choose(), protonet: _choose()}
    chosen[again] = _choose({"ProtoNet": 61.0, "ProtoNet + T": 66.0})
    found = _find(tmp_path, chosen)
    below = found["1-shot: inductive meta-learning is below SimpleShot", "mini-ImageNet"]
    assert below.verdict == "undecided"
    low, high = (float(n) for n in below.numbers.partition("(-")[2].rstrip(")").split(" to "))
    assert (round(-low), round(high)) == (-1, 5)
    # A run is compared with itself, not with the other run.
    gain = found["1-shot: a system with confident queries (+T) is above the one without",
                 "mini-ImageNet"]  # fmt: skip
    assert gain.verdict == "holds"
    results = make_results(tmp_path, chosen, ["table1"])
    (compared,) = (
        one
        for one in compare_families(results)
        if (one.shots, one.relation) == (1, "above the one without")
    )
    assert len(compared.intervals) == 2


def test_other_images_are_never_paired(tmp_path, runs):
    elsewhere = source("mini-imagenet", images="others")
    unknown = source("mini-imagenet", images="", number=1)
    found = _find(tmp_path, dict.fromkeys([elsewhere, unknown, *runs], _choose()))
    assert {text.partition(": ")[2] for text, _ in found} == {
        "a system with confident queries (+T) is above the one without",  # on its own network
        "SimpleShot or Distill is below TIM-ADM",
        "SimpleShot or Distill is below TIM-GD",
    }


def test_other_families_of_networks_are_not_compared(tmp_path, runs):
    wide = source("mini-imagenet", "wrn28-10")
    found = _find(tmp_path, dict.fromkeys([wide, *runs], _choose()))
    assert not [text for text, _ in found if "below SimpleShot" in text]


def test_intervals_are_those_of_the_paired_differences(tmp_path, runs):
    results = make_results(
        tmp_path, dict.fromkeys([source("mini-imagenet"), runs[0]], _choose()), ["table1"]
    )
    one = next(c for c in compare_families(results) if c.relation == "below SimpleShot")
    ((mean, half_width),) = one.intervals
    above, below = (SimpleNamespace(name=name) for name in ("SimpleShot", "ProtoNet"))
    difference = _choose()(above) - _choose()(below)
    assert mean == pytest.approx(float(difference.mean()), abs=1e-4)
    expected = 1.96 * float(difference.std()) / 300**0.5
    assert half_width == pytest.approx(expected, rel=1e-3)
    tables = [family_table(check_families(results)), comparison_table([one])]
    assert tables[1].rows[0][:4] == ["ProtoNet", "mini-ImageNet", "ResNet-18", "1-shot"]
    assert tables[1].rows[0][4] == f"{mean:.2f} ± {half_width:.2f}"
    assert tables[0].rows[0][1] == "mini-ImageNet"
