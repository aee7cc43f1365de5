"""Run files that are damaged, made up, or of a newer version: refused with one sentence."""

import hashlib
import io
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load

from infoshot import DataError, labelling
from infoshot.core.tensor_file import write_tensor_file
from infoshot.labelling import add_labels, draw_audit, predict
from infoshot.labelling.classifier import load_classifier


@pytest.fixture(scope="module")
def finished(made):
    return labelling.label(
        made / "examples", made / "photos", made / "to-damage", backbone=made / "weights",
        cache=made / "cache", method="prototype",
    ).folder  # fmt: skip


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def refuse(function, *arguments, **more):
    """Call a function that must refuse its input; return the sentence."""
    with pytest.raises(DataError) as caught:
        function(*arguments, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def change_facts(run, change):
    """Change run.json as a person or another version would."""
    facts = json.loads((run / "run.json").read_text())
    change(facts)
    (run / "run.json").write_text(json.dumps(facts))


def put(*keys, value):
    """Return a function that changes one entry."""

    def change(facts):
        for key in keys[:-1]:
            facts = facts[key]
        facts[keys[-1]] = value

    return change


def test_entries_of_a_newer_version_are_named(run):
    def change(facts):
        facts["environment"]["infoshot"] = "1.20"
        facts["request"]["gamma"] = 2
        facts["colours"] = []

    change_facts(run, change)
    text = refuse(draw_audit, run)
    assert "written by InfoShot 1.20, which is newer than " in text
    assert "unknown entries 'colours', 'request.gamma'" in text
    change_facts(run, put("format", value="infoshot.run/7"))
    assert "written by InfoShot 1.20, which is newer than " in refuse(draw_audit, run)


WRONG_FACTS = {
    "request is a list": (put("request", value=[]), "'request' must be an object; got a list"),
    "threshold is text": (put("request", "threshold", value="0.5"), "must be a finite number"),
    "prior is a list": (put("request", "prior", value=[1]), "'request.prior' must be an object"),
    "truth is a number": (put("request", "reject_outliers", value=1), "must be true or false"),
    "count is a fraction": (put("counts", "photos", value=60.5), "must be a whole number"),
    "no cache": (lambda facts: facts.pop("cache"), "'cache' is missing"),
    "cache is a number": (put("cache", value=3), "'cache' must be text; got 3"),
    "no transform": (lambda f: f["encoder"].pop("transform"), "'encoder.transform' is missing"),
    "example is text": (put("examples", 0, value="x"), "'examples[0]' must be an object; got text"),
    "example without digest": (lambda f: f["examples"][1].pop("sha256"), "'examples[1].sha256' is"),
    "zero byte": (put("examples", 0, "file", value="a\0b"), "contains a zero byte"),
    "lone surrogate": (put("request", "method", value="\ud800"), "is not valid Unicode"),
    "huge number": (put("counts", "photos", value=10**30), "more than 64 bits"),
    "infinite number": (put("thresholds", "confidence", value=1e999), "Infinity is not a number"),
    "long name": (put("cache", value="9" * 300), "'cache' is longer than a file name can be"),
    "environment is text": (put("environment", value="x"), "'environment' must be an object"),
}


@pytest.mark.parametrize("case", WRONG_FACTS)
def test_entries_of_another_type_are_named(case, run, made):
    change, message = WRONG_FACTS[case]
    change_facts(run, change)
    for function in (draw_audit, lambda run: add_labels(run, {"x.png": "cat"})):
        text = refuse(function, run)
        assert f"{run / 'run.json'}: not the description of a labelling run" in text
        assert message in text


WRONG_TEXTS = {
    "deep": b"[" * 100_000,
    "not UTF-8": b'{"format": "\xff"}',
    "empty": b"",
    "a list": b"[]",
    "NaN": b'{"format": NaN}',
}


@pytest.mark.parametrize("case", WRONG_TEXTS)
def test_texts_that_are_no_description_are_refused(case, run):
    (run / "run.json").write_bytes(WRONG_TEXTS[case])
    assert "not the description of a labelling run" in refuse(draw_audit, run)


def test_a_huge_description_is_not_read(run):
    with (run / "run.json").open("ab") as file:
        file.truncate(2**40)
    assert "run.json: cannot be read (larger than 67,108,864 bytes)." in refuse(draw_audit, run)


def write_table(run, table, **options):
    """Replace labels.parquet, with its digest in run.json."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    (run / "labels.parquet").write_bytes(sink.getvalue())
    digest = hashlib.sha256(sink.getvalue()).hexdigest()
    change_facts(
        run, lambda facts: facts.setdefault("files", {}).update({"labels.parquet": digest})
    )


def set_column(name, values, kind=None):
    def change(table):
        array = pa.array(values(table[name].to_pylist()), kind or table.schema.field(name).type)
        return table.set_column(table.column_names.index(name), name, array)

    return change


WRONG_TABLES = {
    "no column": (lambda table: table.drop(["status"]), "it must have one column 'status'"),
    "two columns": (
        lambda table: table.append_column("label", table["label"]), "one column 'label'",
    ),
    "numbers": (set_column("path", lambda v: range(len(v)), pa.int64()), "'path' must be string"),
    "text": (set_column("margin", lambda v: ["x"] * len(v), pa.string()), "must be double"),
    "rows": (lambda table: table.slice(1), "it has 59 rows instead of 60"),
    "null": (set_column("label", lambda v: [None, *v[1:]]), "a text is missing"),
    "no class": (set_column("label", lambda v: ["fox", *v[1:]]), "has the value 'fox'"),
    "no status": (set_column("status", lambda v: ["?", *v[1:]]), "has the value '?'"),
    "no digest": (set_column("sha256", lambda v: ["0", *v[1:]]), "not a digest"),
    "zero byte": (set_column("file", lambda v: [b"a\0", *v[1:]]), "contains a zero byte"),
    "infinite": (set_column("confidence", lambda v: [1e308, *v[1:]]), "has the value 1e+308"),
    "no number": (set_column("margin", lambda v: [None, *v[1:]]), "a number is missing"),
    "short row": (set_column("probabilities", lambda v: [[1.0], *v[1:]]), "not 3 numbers"),
    "no row": (set_column("probabilities", lambda v: [None, *v[1:]]), "not 3 numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_TABLES)
def test_tables_that_do_not_fit_the_run_are_refused(case, run):
    change, message = WRONG_TABLES[case]
    write_table(run, change(pq.read_table(run / "labels.parquet")))
    text = refuse(draw_audit, run)
    assert "labels.parquet: damaged, or not the labels of this run (" in text
    assert message in text


def test_many_rows_in_few_bytes_are_not_read(run):
    n = 200_000
    table = pq.read_table(run / "labels.parquet")
    columns = {
        field.name: pa.chunked_array([pa.repeat(table[field.name][0], n)]) for field in table.schema
    }
    write_table(run, pa.table(columns), compression="zstd")
    change_facts(run, put("counts", "photos", value=n))
    assert (run / "labels.parquet").stat().st_size < 100_000
    assert "200,000 rows cannot be in " in refuse(draw_audit, run)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"\xff" * 1000])
def test_files_that_are_no_tables_are_refused(content, run):
    (run / "labels.parquet").write_bytes(content)
    assert "labels.parquet: damaged, or changed since it was written" in refuse(draw_audit, run)
    change_facts(run, lambda facts: facts.pop("files", None))
    assert "labels.parquet: damaged, or not the labels of this run" in refuse(draw_audit, run)


def facts_and_tensors(path):
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(header["__metadata__"]["classifier"]), load(content)


def old_classifier(path, **changes):
    """Write a classifier without a digest, as the first version did."""
    facts, tensors = facts_and_tensors(path)
    facts.pop("sha256", None)
    facts["format"] = "infoshot.label.classifier/2"
    for name, value in changes.items():
        (tensors if name in tensors else facts)[name] = (
            value(tensors[name]) if callable(value) else value
        )
    write_tensor_file(path, tensors, facts, kind="classifier")


@pytest.fixture
def classifier(run):
    return run / "classifier.safetensors"


def test_classifiers_without_a_digest_are_readable(classifier, finished):
    old_classifier(classifier)
    found, expected = load_classifier(classifier), load_classifier(finished)
    assert torch.equal(found.weights, expected.weights)
    assert found.temperature == expected.temperature


WRONG_CLASSIFIERS = {
    "temperature": ({"temperature": -1}, "temperature and exponent must be above 0"),
    "temperature NaN": ({"temperature": float("nan")}, "'temperature' must be a finite number"),
    "exponent": ({"exponent": 0}, "temperature and exponent must be above 0"),
    "huge temperature": ({"temperature": 1e300}, "must be above 0 and finite"),
    "threshold": ({"threshold": 7.5}, "threshold must be between 0 and 1"),
    "one class": ({"classes": ["cat"]}, "two or more distinct names"),
    "class twice": ({"classes": ["cat", "cat", "dog"]}, "two or more distinct names"),
    "more classes": ({"classes": ["a", "b", "c", "d"]}, "must have a row for each class"),
    "classes are numbers": ({"classes": [1, 2, 3]}, "'classes[0]' must be text"),
    "classes are text": ({"classes": "cat"}, "'classes' must be a list"),
    "other dimension": ({"weights": torch.ones(3, 7)}, "must have a row for each class"),
    "one dimension": ({"weights": torch.ones(3)}, "must have a row for each class"),
    "whole numbers": ({"weights": torch.Tensor.long}, "must be floating point"),
    "infinite": ({"centres": lambda x: x / 0}, "centres must be finite"),
    "encoder": ({"encoder": {"transform": "x"}}, "'encoder.backbone' is missing"),
    "settings": ({"settings": {"colour": 1}}, "colour"),
    "unknown": ({"gamma": 2}, "unknown entries gamma"),
}


@pytest.mark.parametrize("case", WRONG_CLASSIFIERS)
def test_classifiers_whose_parts_do_not_fit_are_refused(case, classifier):
    changes, message = WRONG_CLASSIFIERS[case]
    old_classifier(classifier, **changes)
    text = refuse(load_classifier, classifier)
    assert text.startswith(f"{classifier}: damaged, or not a classifier file (")
    assert message in text


def test_changed_classifiers_are_noticed(classifier):
    content = classifier.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    for place in (data, data + 1000, len(content) - 1, content.index(b'"weights"') + 3):
        for bit in (0, 6):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            classifier.write_bytes(changed)
            assert "damaged, or not a classifier file" in refuse(load_classifier, classifier)
    classifier.write_bytes(content.replace(b'threshold\\": 0.5', b'threshold\\": 0.6'))
    assert "its digest differs" in refuse(load_classifier, classifier)


def test_exchanged_places_of_tensors_are_noticed(classifier):
    content = classifier.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:data])
    header["weights"], header["centres"] = header["centres"], header["weights"]
    text = json.dumps(header).encode()
    classifier.write_bytes(len(text).to_bytes(8, "little") + text + content[data:])
    assert "its digest differs" in refuse(load_classifier, classifier)


def test_weights_of_another_encoder_are_refused_before_images_are_encoded(
    run, classifier, made, no_encoding
):
    old_classifier(classifier, weights=torch.ones(3, 9), centres=torch.ones(3, 9))
    assert "do not fit the features of the encoder" in refuse(predict, run, made / "photos")
