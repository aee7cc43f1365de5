"""Heads of trained systems as methods."""

import dataclasses
import json

import pytest
import torch
from typer.testing import CliRunner

from infoshot import DataError, FeatureTable, InvalidArgumentError, bench, solve, write_features
from infoshot.backbones import make_backbone
from infoshot.backbones.backbone import StoredSystem
from infoshot.backbones.checkpoints import load_checkpoint, save_checkpoint
from infoshot.benchmark.variants import resolve_variants
from infoshot.cli.app import app
from infoshot.tasks import gaussian_tasks
from infoshot.testing import check_solver
from infoshot.training.episodic.registry import make_head, resolve_head_settings
from infoshot.training.episodic.trained_head import system_method
from infoshot.training.episodic.trained_system import load_system


def _save(folder, name, config=None, **settings):
    torch.manual_seed(0)
    settings = resolve_head_settings(name, settings)
    head = make_head(name, 16, 3, settings)
    stored = StoredSystem(name, settings, head.state_dict())
    weights = make_backbone("tests.heads:TinyNet").state_dict()
    names = ("a", "b", "c")
    save_checkpoint(
        folder, "tests.heads:TinyNet", weights, class_names=names, config=config, system=stored
    )
    return folder


def _table(**provenance):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(6).repeat_interleave(20)
    z = torch.randn(6, 16, generator=generator)[y] + torch.randn(120, 16, generator=generator)
    return FeatureTable(z, y, provenance=provenance)


@pytest.mark.parametrize("name", ["protonet", "matchnet"])
def test_head_keeps_the_contract_of_a_solver(tmp_path, name):
    method = system_method(_save(tmp_path, name))
    check_solver(method.solver)
    assert (method.preparation, method.transductive, method.inductive) == ("none", False, False)


def test_rows_say_what_a_trained_system_assumes(tmp_path):
    names = {name: _save(tmp_path / name, name) for name in ("sib", "tpn", "protonet")}
    systems = [f"system:{folder}" for folder in names.values()]
    result = bench(_table(), systems, ways=5, shots=1, tasks=5, queries=5)
    assert [row.assumes for row in result.rows] == [("balance",), (), ()]
    _, cells = result.table()
    assert [line[1] for line in cells] == ["balance", "nothing", "nothing"]


def test_method_is_the_head_on_features_as_they_are(tmp_path):
    _save(tmp_path, "protonet", temperature=0.3)
    tasks, _ = gaussian_tasks(4, n_way=3, dim=16, separation=20.0)
    solution = solve(system_method(tmp_path).solver, tasks, chunk_size=2)
    head = load_system(tmp_path).head
    expected = head.log_posterior(tasks.z_sup, tasks.y_sup, tasks.z_qry, 3).exp()
    torch.testing.assert_close(solution.probabilities, expected)
    torch.testing.assert_close(solution.prototypes, tasks.z_sup)


def test_benchmark_names_it_by_its_folder(tmp_path):
    folder = _save(tmp_path / "run(1)", "protonet")
    digest = load_checkpoint(folder).digest
    table = _table(weights_sha256=digest)
    result = bench(table, [f"system:{folder}", "prototype"], ways=4, shots=1, tasks=30, queries=5)
    first, second = result.rows
    assert first.method == f"system:{folder}"
    assert first.settings == {
        "preparation": "none", "system": "protonet", "system_digest": load_system(folder).digest,
        "head.temperature": 2.0, "head.per_dimension": False,
    }  # fmt: skip
    # Without normalisation the answers are others than those of the nearest unit vector.
    assert first.mean != second.mean
    assert [method.name for method in resolve_variants(f"prototype,system:{folder}")] == [
        "prototype", f"system:{folder}",
    ]  # fmt: skip
    assert bench(_table(), f"system:{folder}", ways=4, shots=1, tasks=5, queries=5).rows


def test_features_of_the_network_that_stayed_frozen_are_accepted(tmp_path):
    """They may record another digest: the network was stored in another precision."""
    base = "f" * 64
    table = _table(weights_sha256=base)
    frozen = _save(tmp_path / "frozen", "protonet", {"backbone_rate": 0.0, "init_sha256": base})
    assert bench(table, f"system:{frozen}", ways=4, shots=1, tasks=5, queries=5).rows
    tuned = _save(tmp_path / "tuned", "protonet", {"backbone_rate": 0.1, "init_sha256": base})
    with pytest.raises(DataError, match="extract the features with its checkpoint"):
        bench(table, f"system:{tuned}", tasks=5)


def test_features_of_other_weights_are_refused(tmp_path):
    folder = _save(tmp_path, "protonet")
    other, own = "f" * 64, load_checkpoint(folder).digest
    with pytest.raises(DataError, match=rf"from weights {'f' * 16}, but the .* {own[:16]}; extr"):
        bench(_table(weights_sha256=other), f"system:{folder}", tasks=5)
    with pytest.warns(UserWarning, match="is skipped: the features come from weights"):
        result = bench(
            _table(weights_sha256=other), f"prototype,system:{folder}", ways=4, shots=1, tasks=5,
            queries=5,
        )  # fmt: skip
    assert [row.method for row in result.rows] == ["prototype"]
    narrow = dataclasses.replace(_table(), features=_table().features[:, :7])
    with pytest.raises(DataError, match="needs features of 16 numbers; got 7"):
        bench(narrow, f"system:{folder}", tasks=5)


def test_head_that_does_not_read_features_is_refused(tmp_path):
    folder = _save(tmp_path, "tests.heads:MapHead")
    with pytest.raises(InvalidArgumentError, match=r"reads maps, not features; evaluate it with i"):
        system_method(folder)


def test_number_of_classes_that_a_head_is_made_for_is_checked_first(tmp_path):
    folder = _save(tmp_path, "tests.heads:Linear", n_way=3)
    with pytest.raises(InvalidArgumentError, match="classifies tasks of 3 classes only; got 4"):
        bench(_table(), f"system:{folder}", ways=4, shots=1, tasks=5, queries=5)


def test_system_that_has_changed_is_refused(tmp_path):
    method = system_method(_save(tmp_path, "protonet"))
    stale = dataclasses.replace(method.solver, digest="0" * 64)
    with pytest.raises(DataError, match="this system has changed since it was opened"):
        solve(stale, gaussian_tasks(1, dim=16)[0])
    save_checkpoint(tmp_path / "plain", "conv4", make_backbone("conv4").state_dict())
    with pytest.raises(DataError, match="holds a backbone, not a few-shot system"):
        resolve_variants(f"system:{tmp_path}/plain")
    with pytest.raises(DataError, match="none: this checkpoint folder does not exist"):
        resolve_variants(f"system:{tmp_path}/none")


def test_settings_of_a_trained_system_cannot_be_changed(tmp_path):
    name = f"system:{_save(tmp_path / 'run', 'protonet')}"
    none = f"{name} has no settings that can be changed; got 'head.temperature'."
    for entry in (f"{name}(head.temperature=3)", (name, {"head.temperature": 3})):
        with pytest.raises(InvalidArgumentError) as caught:
            resolve_variants(entry)
        assert str(caught.value) == none
    with pytest.raises(InvalidArgumentError, match="settings that can be changed; got 'x'"):
        resolve_variants(name, {f"{name}.x": 3})
    for inner in ("folder", "digest", "temperature"):
        with pytest.raises(InvalidArgumentError, match=rf"none of the methods \({name}\) has set"):
            resolve_variants(name, {inner: 3})
    methods = resolve_variants(f"{name},prototype", {"temperature": 3})
    assert methods[1].solver.temperature == 3


def test_parentheses_in_the_name_of_a_missing_folder_are_not_settings(tmp_path):
    with pytest.raises(DataError, match=r"run\(1\): this checkpoint folder does not exist"):
        resolve_variants(f"system:{tmp_path}/run(1)")


def test_command_compares_a_system_with_methods(tmp_path):
    folder = _save(tmp_path / "run", "matchnet")
    write_features(tmp_path / "f", _table(weights_sha256=load_checkpoint(folder).digest))
    arguments = ("bench", "--features", tmp_path / "f", "--methods", f"prototype,system:{folder}",
                 "--ways", 4, "--shots", 1, "--queries", 5, "--tasks", 10, "--json",
                 tmp_path / "rows.json")  # fmt: skip
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["method"] for row in rows] == ["prototype", f"system:{folder}"]
