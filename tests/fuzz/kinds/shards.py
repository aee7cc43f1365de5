"""Shards of features, the folder of an interrupted solve over them, and odd files among them."""

import os
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from infoshot import solve_shards
from tests.fuzz.containers import damage_npy, damage_safetensors, to_npy
from tests.fuzz.kinds.features import odd_table
from tests.fuzz.kinds.made import make_rows, make_support, put, write
from tests.fuzz.mutations import damage_json
from tests.fuzz.runner import Case, Kind, run_command

_STEPS = {"n_steps": 3}


class Shards(Kind):
    """A support file and three shards, one of which is damaged."""

    name = "shards"

    def prepare(self, intact: Path) -> None:
        make_support(intact / "support.safetensors")
        z = make_rows(60, seed=1)[0]
        write(intact / "queries" / "a.safetensors", save({"features": z[:30].astype(np.float16)}))
        write(intact / "queries" / "b.npy", to_npy(z[30:59].astype(np.float16)))
        write(intact / "queries" / "c.npy", to_npy(z[59:]))

    def check(self, case: Case) -> None:
        case.copy("support.safetensors", "queries")
        _solve(case)

    def attempt(self, case: Case) -> None:
        case.copy("support.safetensors", "queries")
        how = case.random.choices((_damage, _odd_rows, _odd_entry, _cut_meanwhile), (6, 2, 2, 1))[0]
        if how is _cut_meanwhile:
            return _cut_meanwhile(case)
        case.note(how(case))
        method = case.random.choice(("tim-adm", "tim-adm", "tim-auto"))
        _solve(case, "--method", method)
        return None


class ShardOutput(Kind):
    """The files that a solve over shards leaves behind and resumes from."""

    name = "shard-output"

    def prepare(self, intact: Path) -> None:
        SHARDS.prepare(intact)
        solve_shards("support.safetensors", "queries", "out", settings=_STEPS, progress=False)
        summary = (intact / "out" / "run.json").read_text()
        write(intact / "out" / "run.json", summary)

    def check(self, case: Case) -> None:
        case.copy("support.safetensors", "queries", "out")
        _solve(case)
        assert "Already finished" in _solve(case)

    def attempt(self, case: Case) -> None:
        random = case.random
        case.copy("support.safetensors", "queries", "out")
        out = case.work / "out"
        if random.random() < 0.4:
            (out / "run.json").unlink()
            (out / "labels" / "b.safetensors").unlink()
        paths = sorted(path for path in out.rglob("*") if path.is_file() and path.name[0] != ".")
        path = random.choice(paths)
        change = damage_json if path.suffix == ".json" else damage_safetensors
        given = path.read_text() if path.suffix == ".json" else path.read_bytes()
        content, done = change(random, given)
        case.note(f"{path.name}: {done}, {put(random, path, content)}")
        more = ("--force",) if random.random() < 0.1 else ()
        _solve(case, *more)


def _solve(case: Case, *more: str) -> str:
    printed = run_command(
        "solve-shards", "--support", "support.safetensors", "--queries", "queries", "--out", "out",
        "--set", "n_steps=3", *more,
    )  # fmt: skip
    shards = {path.stem for path in (case.work / "queries").glob("[!.]*")}
    assert {p.stem for p in (case.work / "out" / "labels").glob("*.safetensors")} >= shards
    assert (case.work / "out" / "run.json").exists()
    return printed


def _damage(case: Case) -> str:
    path = case.random.choice(sorted((case.work / "queries").iterdir()))
    change = damage_npy if path.suffix == ".npy" else damage_safetensors
    content, done = change(case.random, path.read_bytes())
    path.write_bytes(content)
    return f"{path.name}: {done}"


def _odd_rows(case: Case) -> str:
    arrays, _, done = odd_table(case.random)
    if case.random.random() < 0.5:
        (case.work / "queries" / "c.npy").write_bytes(to_npy(arrays["features"]))
    else:
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        (case.work / "queries" / "a.safetensors").write_bytes(save(arrays))
    return done


def _odd_entry(case: Case) -> str:
    """Add or change an entry of the folder: a pipe, a folder, a link, an empty file."""
    suffix = case.random.choice((".npy", ".safetensors"))
    path = case.work / "queries" / f"{case.random.choice(('d', 'b', '.d'))}{suffix}"
    path.unlink(missing_ok=True)
    how = case.random.choice(
        ("pipe", "folder", "link to nothing", "link to itself", "empty", "link")
    )
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "empty":
        path.touch()
    else:
        targets = {"link to nothing": "nothing", "link to itself": path.name, "link": "/dev/zero"}
        path.symlink_to(targets[how])
    return f"{path.name}: {how}"


def _cut_meanwhile(case: Case) -> None:
    """Truncate a shard while it is read."""
    path = case.random.choice(sorted((case.work / "queries").iterdir()))
    write(path, path.read_bytes()[:0] + _large(path.suffix))
    calls, last = [0], case.random.randint(1, 12)
    case.note(f"{path.name}: truncated during the solve, at call {last} of the progress")

    def cut(*_: object) -> None:
        calls[0] += 1
        if calls[0] == last:
            os.truncate(path, 200)

    solve_shards("support.safetensors", "queries", "out", settings=_STEPS, progress=cut)


def _large(suffix: str) -> bytes:
    z = make_rows(20_000, seed=2)[0]
    return to_npy(z) if suffix == ".npy" else save({"features": z})


SHARDS = Shards()
KINDS = (SHARDS, ShardOutput())
