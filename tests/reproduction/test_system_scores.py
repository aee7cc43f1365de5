"""Trained systems in a report: same tasks, parts, stored results, shots, images."""

import dataclasses

import pytest
import torch

from infoshot import DataError, InvalidArgumentError
from infoshot.benchmark import score_cell
from infoshot.features.extract import Extraction, extract_split
from infoshot.images import open_dataset
from infoshot.images.datasets import recognise_dataset
from infoshot.reproduction import system_scores
from infoshot.reproduction.measurements import run_cells
from infoshot.reproduction.network_groups import Results
from infoshot.reproduction.report_cells import Plan
from infoshot.reproduction.report_store import Store
from infoshot.reproduction.reported_runs import plan_systems, serves
from infoshot.reproduction.system_scores import Trials
from infoshot.reproduction.system_trials import find_trials, open_systems
from infoshot.solvers import METHODS
from tests.image_folders import make_folders
from tests.reproduction.small_systems import BIRDS, MINI, Images, Maps, Vectors, make_system
from tests.reproduction.synthetic_results import system_run

PLAN = Plan(experiments=["table1"], n_tasks=7, n_network_tasks=5)
KINDS = {"vectors": Vectors, "maps": Maps, "images": Images}


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("mini"), 20, (24, 26), MINI)


@pytest.fixture(scope="module")
def cub(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("cub"), 20, (24, 26), {"": BIRDS})


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    """Store every three tasks."""
    parts = dict.fromkeys(KINDS, 3)
    monkeypatch.setattr(system_scores, "_STORED_AT_ONCE", parts)


def _evaluate(folder, systems, roots, plan=PLAN, trials=Trials):
    """Run all cells of some systems into a store."""
    found = find_trials(plan, open_systems(systems), roots, folder)
    store = Store(folder, (), [trial.run for trial in found])
    store.read()
    at_hand = trials(found)
    planned = plan_systems(plan, store.systems, at_hand)
    run_cells(planned, (), store, trials=at_hand)
    return planned, store


def _accuracies(planned, store, shots=5):
    keys = [item.key for item in planned if item.cell.shots == shots]
    return [store.accuracies[key] for key in keys]


def test_tasks_are_those_of_every_other_row(mini, tmp_path):
    """Nearest means over what each kind of head reads, against the method "prototype"."""
    split = open_dataset("mini-imagenet", mini).split("test")
    encoder = make_system().encoder
    table = extract_split("mini-imagenet", split, encoder, Extraction())
    for kind in (Vectors, Maps, Images):
        folder = tmp_path / kind.__name__
        folder.mkdir()
        planned, store = _evaluate(folder, [make_system(kind=kind)], [mini])
        assert [item.cell.shots for item in planned] == [1, 5]
        for item in planned:
            _, expected = score_cell(table, METHODS["prototype"], item.protocol)
            found = store.accuracies[item.key]
            assert len(found) == (5 if kind is Images else 7)
            # Maps are kept in float16, which may change a label where two classes are close.
            closeness = {"rtol": 0, "atol": 2.1 / 75 if kind is Maps else 1e-6}
            torch.testing.assert_close(found, expected.float()[: len(found)], **closeness)
            row = store.rows[item.key]
            assert (row.method, row.tasks) == ("feat", len(found))
            assert row.features_digest == make_system(kind=kind).digest


def test_number_of_tasks_depends_on_what_a_system_reads(mini, tmp_path):
    plan = Plan(experiments=["table1"], n_tasks=5000, n_network_tasks=300)
    n_tasks = {}
    for name, kind in KINDS.items():
        trials = find_trials(plan, open_systems([make_system(kind=kind)]), [mini], tmp_path)
        planned = plan_systems(plan, [trial.run for trial in trials], ())
        n_tasks[name] = {item.protocol.n_tasks for item in planned}
    assert n_tasks == {"vectors": {5000}, "maps": {1000}, "images": {300}}
    few = dataclasses.replace(plan, n_tasks=20)
    (trial,) = find_trials(few, open_systems([make_system(kind=Maps)]), [mini], tmp_path)
    assert {item.protocol.n_tasks for item in plan_systems(few, [trial.run], ())} == {20}


def test_maps_that_do_not_fit_are_computed_again(mini, tmp_path, monkeypatch):
    kept = _accuracies(*_evaluate(tmp_path, [make_system(kind=Maps)], [mini]))
    monkeypatch.setattr(system_scores, "_free_memory", lambda device: 0)
    (tmp_path / "again").mkdir()
    again = _accuracies(*_evaluate(tmp_path / "again", [make_system(kind=Maps)], [mini]))
    torch.testing.assert_close(kept, again, rtol=0, atol=2.1 / 75)
    vectors = _accuracies(*_evaluate(tmp_path, [make_system(kind=Vectors)], [mini]))
    torch.testing.assert_close(again, vectors[-1:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [Vectors, Maps, Images])
def test_interrupted_cell_resumes_to_the_same_result(kind, mini, tmp_path):
    class Stopped(Trials):
        """Is killed after the first part of the second cell."""

        n_parts = 0

        def score(self, *arguments, **options):
            for scores in super().score(*arguments, **options):
                yield scores
                self.n_parts += 1
                if self.n_parts == 3:
                    raise KeyboardInterrupt

    plan = dataclasses.replace(PLAN, n_tasks=4, n_network_tasks=4)
    (tmp_path / "whole").mkdir()
    planned, whole = _evaluate(tmp_path / "whole", [make_system(kind=kind)], [mini], plan)
    with pytest.raises(KeyboardInterrupt):
        _evaluate(tmp_path, [make_system(kind=kind)], [mini], plan, Stopped)
    partial = Store(tmp_path, ())
    partial.read()
    assert [row.tasks for row in partial.rows.values()] == [4, 3]
    drawn = []

    class Counted(Trials):
        def score(self, digest, cell, protocol, *, earlier=None, **options):
            drawn.append((cell.shots, 0 if earlier is None else earlier[0].tasks))
            return super().score(digest, cell, protocol, earlier=earlier, **options)

    _, resumed = _evaluate(tmp_path, [make_system(kind=kind)], [mini], plan, Counted)
    assert drawn == [(5, 3)]
    for item in planned:
        assert torch.equal(resumed.accuracies[item.key], whole.accuracies[item.key])
        assert resumed.rows[item.key].mean == whole.rows[item.key].mean


def test_stored_results_are_found_without_the_run_and_the_images(mini, tmp_path):
    _evaluate(tmp_path, [make_system()], [mini])
    store = Store(tmp_path, ())
    store.read()
    planned = plan_systems(PLAN, store.systems, ())
    assert {item.not_run for item in planned} == {
        "needs the trained system and images (systems and root)"
    }
    results = Results(planned, store)
    (group,) = results.systems
    assert group.title == "mini-ImageNet, Conv-4, episodes of feat"
    for item in planned:
        assert results.measured(group, item.cell.setting).n_tasks == 7
    assert find_trials(PLAN, open_systems([make_system()]), [], tmp_path) == []
    more = dataclasses.replace(PLAN, n_tasks=9, device="cuda")
    assert [item.key for item in plan_systems(more, store.systems, ())] == [
        item.key for item in planned
    ]


def test_key_depends_on_system_images_and_task(mini, cub, tmp_path):
    def keys(*systems, root=mini, **changes):
        plan = dataclasses.replace(PLAN, **changes)
        trials = find_trials(plan, open_systems(systems), [root], tmp_path)
        return {item.key for item in plan_systems(plan, [trial.run for trial in trials], ())}

    first = keys(make_system())
    assert len(first) == 2
    assert first == keys(make_system())
    others = (
        keys(make_system(seed=1)),
        keys(make_system(kind=Maps)),
        keys(make_system(), seed=1),
        keys(make_system(), root=cub, experiments=["table2"]),
    )
    assert not any(first & other for other in others)


def test_root_serves_systems_of_its_data_set_and_the_domain_shift(mini, cub, tmp_path):
    assert [recognise_dataset(root) for root in (mini, cub)] == ["mini-imagenet", "cub"]
    ours, birds = make_system(), make_system("tpn", trained_on="cub", seed=1)
    plan = dataclasses.replace(PLAN, experiments=["table1", "table2", "table3"])
    trials = find_trials(plan, open_systems([ours, birds]), [mini, cub], tmp_path)
    assert [(trial.run.system, trial.run.source.dataset) for trial in trials] == [
        ("feat", "mini-imagenet"), ("feat", "mini-to-cub"), ("tpn", "cub"),
    ]  # fmt: skip
    assert trials[1].images is trials[2].images  # decoded once
    planned = plan_systems(plan, [trial.run for trial in trials], ())
    assert [(item.cell.experiment, item.cell.name, item.cell.shots) for item in planned] == [
        ("table1", "FEAT", 1), ("table1", "FEAT", 5), ("table2", "FEAT", 5),
        ("table1", "TPN", 1), ("table1", "TPN", 5),
    ]  # fmt: skip
    with pytest.raises(DataError) as caught:
        find_trials(plan, open_systems([birds]), [mini], tmp_path)
    assert str(caught.value) == (
        f"root must have images of cub, which tpn was trained on; got {mini} (mini-imagenet)."
    )


def test_rows_say_what_a_system_assumes(mini, tmp_path):
    class Balanced(Vectors):
        assumes = ("balance",)

    planned, store = _evaluate(tmp_path, [make_system(kind=Balanced)], [mini])
    assert {item.cell.assumes for item in planned} == {("balance",)}
    assert {row.assumes for row in store.rows.values()} == {("balance",)}


def test_images_of_unknown_classes_are_those_of_the_training(tmp_path):
    root = make_folders(tmp_path / "own", 20, (24, 26), {"test": "abcde"})
    assert recognise_dataset(root) == ""
    (trial,) = find_trials(PLAN, open_systems([make_system(trained_on="folder")]), [root], tmp_path)
    assert trial.run.source.dataset == "folder"


def test_runs_serve_the_shots_they_were_trained_for():
    one, five = (system_run("protonet", "cub", shots=shots) for shots in (1, 5))
    other = system_run("protonet", "mini-imagenet", shots=1)
    unknown = system_run("tpn", "cub")

    def served(runs):
        return [[shots for shots in (1, 5) if serves(run, shots, runs)] for run in runs]

    assert served([one]) == served([five]) == served([unknown]) == [[1, 5]]
    assert served([one, five, other, unknown]) == [[1], [5], [1, 5], [1, 5]]
    again = system_run("protonet", "cub", shots=5, number=1)
    assert served([one, five, again]) == [[1], [5], [5]]
    fifteen = system_run("protonet", "cub", shots=15)
    assert served([one, fifteen]) == [[1, 5], []]


def test_systems_that_cannot_run_say_why(mini, tmp_path):
    five_ways = make_system("protonet")
    five_ways.head.n_way = 5
    plan = dataclasses.replace(PLAN, experiments=["table3"])
    (trial,) = find_trials(plan, open_systems([five_ways]), [mini], tmp_path)
    planned = plan_systems(plan, [trial.run], [trial.run.source.digest])
    assert {item.not_run for item in planned} == {"the system classifies tasks of 5 classes only"}
    (trial,) = find_trials(plan, open_systems([make_system("protonet")]), [mini], tmp_path)
    planned = plan_systems(plan, [trial.run], [trial.run.source.digest])
    assert [item.not_run for item in planned][:1] == ["10 classes are needed, there are 5"]


def test_wrong_usage_is_one_sentence(mini, tmp_path):
    with pytest.raises(InvalidArgumentError) as caught:
        find_trials(PLAN, open_systems([make_system()]), [], tmp_path)
    assert str(caught.value) == (
        f"root must be given with the images for systems: {tmp_path} holds no results of feat."
    )
    with pytest.raises(InvalidArgumentError) as caught:
        open_systems([make_system(), make_system()])
    assert str(caught.value) == (
        "systems must be different runs; got 'feat' and 'feat' with the same content."
    )
    few = make_folders(tmp_path / "few", 12, (24, 26), MINI)
    with pytest.raises(DataError) as caught:
        find_trials(PLAN, open_systems([make_system()]), [mini, few], tmp_path)
    assert str(caught.value) == (
        f"{few}, split 'test': 1-shot tasks of the paper need 16 images of every class; "
        f"'{min(MINI['test'])}' has 12."
    )
    four = make_folders(tmp_path / "four", 20, (24, 26), {"test": MINI["test"][:4]})
    with pytest.raises(DataError) as caught:
        find_trials(PLAN, open_systems([make_system()]), [four], tmp_path)
    assert str(caught.value) == (f"{four}, split 'test': the paper's tasks have 5 classes; got 4.")

    class Undefined(Vectors):
        def log_posterior(self, *task):
            return super().log_posterior(*task) * torch.nan

    with pytest.raises(DataError, match=r"^feat: gives probabilities that are NaN\.$"):
        _evaluate(tmp_path, [make_system(kind=Undefined)], [mini])
