"""The files of a labelling run, and the cache of features."""

import csv
import io
import json
import math
import os
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load, save

from infoshot import labelling
from infoshot.core.errors import InfoshotError
from infoshot.labelling.answer_log import Answer, AnswerLog, Change, Entry
from infoshot.reviewing.session import Session
from tests.fuzz.containers import damage_safetensors
from tests.fuzz.kinds.made import RUN, make_run, put
from tests.fuzz.mutations import FLOATS, TEXTS, damage, damage_json, damage_text
from tests.fuzz.runner import Case, Kind, RefusedError, run_command


class RunFile(Kind):
    """One file of a run is damaged, then a command uses the run."""

    made = "run"
    file: str

    def prepare(self, intact: Path) -> None:
        make_run(intact)

    def attempt(self, case: Case) -> None:
        case.copy(*RUN)
        path = case.work / "run" / self.file
        content, done = self.damage(case.random, path.read_bytes())
        sealed = put(case.random, path, content)
        use = case.random.choice((_draw, _audit, _suggest, _predict, _add, _label))
        case.note(f"{done}, {sealed}; {use.__name__.strip('_')}")
        use_run(case, use)

    def damage(self, random: Random, content: bytes) -> tuple[bytes, str]:
        raise NotImplementedError


class Description(RunFile):
    name, file = "run.json", "run.json"

    def check(self, case: Case) -> None:
        case.copy(*RUN)
        for use in (_draw, _audit, _suggest, _predict, _label, _add):
            use_run(case, use)

    def damage(self, random: Random, content: bytes) -> tuple[bytes, str]:
        return damage_json(random, content.decode())


class Labels(RunFile):
    name, file = "labels.parquet", "labels.parquet"

    def damage(self, random: Random, content: bytes) -> tuple[bytes, str]:
        return (
            damage(random, content) if random.random() < 0.4 else _change_columns(random, content)
        )


class Corrections(RunFile):
    name, file = "corrections.csv", "corrections.csv"

    def damage(self, random: Random, content: bytes) -> tuple[bytes, str]:
        return damage_text(random, content.decode())


class ReviewLog(RunFile):
    """The log of a review, with answers that the run does not contain yet."""

    name, file = "review.jsonl", "review.jsonl"

    def attempt(self, case: Case) -> None:
        case.copy(*RUN)
        run = case.work / "run"
        with (run / "labels.csv").open(newline="") as file:
            paths = [row["path"] for row in csv.DictReader(file)]
        with closing(AnswerLog(run)) as log:
            for n, answer in enumerate((Answer("cat"), Answer("dog", audit=True), None), 1):
                facts = {"labels": "", "predicted": {}} if n == 2 else {}
                change = Change(paths[n], None, answer)
                action = ("label", "audit", "clear")[n - 1]
                log.append(Entry(n, "2026", action, "a", [change], facts=facts))
        content, done = self.damage(case.random, log.path.read_bytes())
        log.path.write_bytes(content)
        use = case.random.choice((_add, _label, _review, _review))
        case.note(f"{done}; {use.__name__.strip('_')}")
        use_run(case, use)

    def damage(self, random: Random, content: bytes) -> tuple[bytes, str]:
        if random.random() < 0.4:
            return damage(random, content)
        lines = content.splitlines()
        number = random.randrange(len(lines))
        lines[number], done = damage_json(random, lines[number].decode())
        return b"\n".join(lines) + b"\n", f"line {number + 1}: {done}"


class Classifier(RunFile):
    """The classifier of a run, alone or in its folder."""

    name, file = "classifier", "classifier.safetensors"

    def attempt(self, case: Case) -> None:
        case.copy(*RUN)
        path = case.work / "run" / self.file
        content, done = self.damage(case.random, path.read_bytes())
        case.note(f"{done}, {put(case.random, path, content)}")
        _predict(case)

    def damage(self, random: Random, content: bytes) -> tuple[bytes, str]:
        size = int.from_bytes(content[:8], "little")
        arrays, text = (
            load(content),
            json.loads(content[8 : 8 + size])["__metadata__"]["classifier"],
        )
        facts = json.loads(text)
        if random.random() < 0.6:  # as an earlier version wrote it, without a digest
            facts["format"] = "infoshot.label.classifier/2"
            facts.pop("sha256", None)
        if random.random() < 0.5:
            whole = save(arrays, {"classifier": json.dumps(facts, sort_keys=True)})
            return damage_safetensors(random, whole)
        done = _change_tensor(random, arrays) if random.random() < 0.4 else _odd_fact(random, facts)
        return save(arrays, {"classifier": json.dumps(facts, sort_keys=True)}), done


def _change_tensor(random: Random, arrays: dict[str, np.ndarray]) -> str:
    name = random.choice(("weights", "centres"))
    z = arrays[name].copy()
    how = random.choice(("value", "all", "shape", "dtype"))
    if how == "value":
        z[random.randrange(len(z)), 0] = random.choice(FLOATS)
    elif how == "all":
        z[:] = random.choice(FLOATS)
    elif how == "shape":
        z = random.choice((z[:1], z[:0], z[:, :3], z.ravel(), z[None], np.concatenate([z, z])))
    else:
        z = z.astype(random.choice((np.float64, np.float16, np.int64, np.uint8, np.bool_)))
    arrays[name] = np.ascontiguousarray(z)
    return f"{how} of {name}"


def _odd_fact(random: Random, facts: dict[str, Any]) -> str:
    numbers = ("temperature", "exponent", "threshold", "outlier_cutoff")
    others = ("classes", "method", "backbone", "encoder", "settings", "reject_outliers")
    key = random.choice((*numbers, *numbers, *others))
    if key in numbers:
        facts[key] = random.choice((-1, 0, 2, "1", None, True, [1.0], 10**400, *FLOATS))
    elif key == "classes":
        odd = (["a"], ["a"] * 3, [1, 2, 3], "abc", None, list(TEXTS[:3]), [], ["a", "b", ["c"]])
        facts[key] = random.choice(odd)
    else:
        odd = ("", "prototype", "os:getcwd", None, {}, {"temperature": -1}, [], *TEXTS[:9])
        facts[key] = random.choice(odd)
    return f"odd {key}"


class Cache(RunFile):
    """A part of the cache is damaged; what it held is computed again, or the run is refused."""

    name = "cache"

    def attempt(self, case: Case) -> None:
        case.copy(*RUN)
        random = case.random
        parts = sorted(path for path in (case.work / "cache").rglob("*") if path.is_file())
        path = random.choice([part for part in parts if part.suffix == ".safetensors"])
        sealed = "replaced"
        if random.random() < 0.8:
            content, done = damage_safetensors(random, path.read_bytes())
            sealed = put(random, path, content)
        else:
            done = random.choice(("pipe", "folder", "link"))
            path.unlink()
            {"pipe": os.mkfifo, "folder": os.mkdir, "link": _link_to_nothing}[done](path)
        use = random.choice((_suggest, _predict, _add, _label))
        case.note(f"{path.name}: {done}, {sealed}; {use.__name__.strip('_')}")
        expected = (case.work / "run" / "labels.csv").read_bytes()
        use_run(case, use)
        if sealed != "digest as recorded" and use is _label:
            assert (case.work / "run" / "labels.csv").read_bytes() == expected, "other labels"


def _link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


# What is done with a run --------------------------------------------------------------------------


def use_run(case: Case, use: Any) -> None:
    """Use a run; whatever happens, the labels that a person gave are kept."""
    corrections = case.work / "run" / "corrections.csv"
    before = corrections.read_bytes()
    try:
        use(case)
    except (InfoshotError, RefusedError):
        after = corrections.read_bytes() if corrections.exists() else b""
        assert after == before, "a command that was refused changed the corrections"
        raise


def _draw(case: Case) -> None:
    run_command("audit", "run", "--n", case.random.choice((1, 3, 100)))
    assert (case.work / "run" / "audit.csv").read_text().startswith("path,label,truth\n")


def _audit(case: Case) -> None:
    run_command("audit", "run", "--answers", "answers.csv", "--json", "audit.json")
    for line in json.loads((case.work / "audit.json").read_text()):
        assert 0 <= line["right"] <= line["checked"]


def _suggest(case: Case) -> None:
    run_command("suggest", "run", "--n", 2)
    assert (case.work / "run" / "suggestions.csv").read_text().startswith("path,label,")


def _predict(case: Case) -> None:
    given = case.random.choice(("run", "run/classifier.safetensors"))
    run_command("predict", given, "photos", "--out", "new.csv")
    with (case.work / "new.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    for row in rows:
        assert row["status"] in ("labelled", "unsure", "outlier")
        assert row["status"] == "outlier" or 0 <= float(row["confidence"]) <= 1


def _add(case: Case) -> None:
    run_command("label", "--add", "more.csv", "run")
    _check_run(case)


def _label(case: Case) -> None:
    more = ("--force",) if case.random.random() < 0.2 else ()
    examples, photos, weights = (case.work / name for name in ("examples", "photos", "weights"))
    where = ("--out", "run", "--backbone", weights, "--cache", "cache")
    run_command("label", examples, photos, *where, *more)
    _check_run(case)


def _review(case: Case) -> None:
    """Open a review without a server, look at everything, and take back what was done."""
    session = Session(case.work / "run", compute=False)
    try:
        json.dumps([session.state(), session.history(None, 100), session.next_audit()])
        json.dumps(session.items(range(session.n_items)))
        session.undo(to=0)
        session.answer("label", [1], label="cat")
    finally:
        session.close()


def _check_run(case: Case) -> None:
    sample = labelling.draw_audit(case.work / "run", n=3, out=case.work / "check.csv")
    assert sample.images
    assert all(math.isfinite(image.confidence) for image in sample.images)


# The columns of labels.parquet ----------------------------------------------------------------------


def _change_columns(random: Random, content: bytes) -> tuple[bytes, str]:
    """Write another table: columns are missing, doubled, of another type, or hold odd values."""
    table = pq.read_table(io.BytesIO(content))
    name = random.choice(table.column_names)
    how = random.choice(
        ("drop", "rename", "double", "nulls", "value", "value", "type", "rows", "schema")
    )
    columns = table.to_pydict()
    if how == "drop":
        del columns[name]
    elif how == "rename":
        columns[random.choice(("x", "label", "path", ""))] = columns.pop(name)
    elif how == "nulls":
        columns[name] = [None] * table.num_rows
    elif how == "type":
        columns[name] = random.choice(
            (list(range(table.num_rows)), ["x"] * table.num_rows, [{"a": 1}] * 6)
        )
    elif how == "rows":
        n = random.choice((0, 1, 5))
        columns = {key: values[:n] for key, values in columns.items()}
    elif how == "value":
        columns[name] = list(columns[name])
        columns[name][random.randrange(table.num_rows)] = _odd_cell(random, columns[name][0])
    try:
        changed = pa.table(columns)
    except (pa.ArrowException, UnicodeEncodeError):
        return content[:-9], f"truncated, since {how} of {name} cannot be stored"
    if how == "double":
        changed = changed.append_column(name, changed.column(name))
    odd = {b"classes": random.choice((b"", b"{", b"[]", b'["a"]', b"null", b"\xff"))}
    changed = changed.replace_schema_metadata(odd if how == "schema" else table.schema.metadata)
    sink = io.BytesIO()
    pq.write_table(changed, sink)
    return sink.getvalue(), f"{how} of {name}"


def _odd_cell(random: Random, value: Any) -> Any:
    if isinstance(value, list):
        return random.choice(([], [1.0], [0.2] * 9, None, [float("nan")] * 3, [-1.0, 3.0, 1e30]))
    if isinstance(value, bytes):
        return random.choice((b"", b"\xff", b"\0", b"/proc/none", b"a" * 9999, None))
    if isinstance(value, float):
        return random.choice((*FLOATS, 2.0, None))
    return random.choice((*TEXTS[:40], "unreadable", None))


KINDS = (Description(), Labels(), Corrections(), ReviewLog(), Classifier(), Cache())
