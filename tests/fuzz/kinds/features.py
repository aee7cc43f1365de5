"""Feature files: safetensors and npz."""

import io
import json
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from infoshot import FeatureTable, read_features
from infoshot.features import write_features
from infoshot.features.four_bits import pack
from tests.fuzz.containers import damage_npz, damage_safetensors, to_npy, to_zip
from tests.fuzz.kinds.made import CLASSES, make_rows, make_support, write
from tests.fuzz.mutations import TEXTS
from tests.fuzz.runner import Case, Kind, run_command

N_ROWS = 110  # enough for the paper's tasks: 5 classes with 5 examples and 15 queries
_LABELS = (-(2**63), -2, -1, 3, 1000, 2**24, 2**31, 4_000_000_000, 2**40, 2**62, 2**63 - 1)
_VALUES = (np.nan, np.inf, -np.inf, 0.0, 1e-320, 1e-40, 1e30, 3e38, 1e300, -1e300)


class FeatureFile(Kind):
    """Feature files of one format, read alone and by the commands that take one."""

    def check(self, case: Case) -> None:
        tables = sorted(case.intact.glob("table*"))
        for path in tables:
            _read(case, path)
        _solve(case, tables[1])
        for use in (_bench, _support, _reproduce):
            use(case, tables[0])

    def attempt(self, case: Case) -> None:
        random = case.random
        if random.random() < 0.3:
            arrays, names, done = odd_table(random)
            content = self.pack(random, arrays, names)
        else:
            source = random.choice(sorted(case.intact.glob("table*")))
            content, done = self.damage(random, source.read_bytes())
            done = f"{source.name}: {done}"
        path = case.work / f"mine.{random.choice((self.name, self.name, self.name, 'bin'))}"
        path.write_bytes(content)
        use = random.choices((_read, _solve, _bench, _support, _reproduce), (16, 3, 2, 2, 1))[0]
        case.note(f"{done}; {use.__name__.strip('_')}")
        use(case, path)

    def damage(self, random: Random, content: bytes) -> tuple[bytes, str]:
        raise NotImplementedError

    def pack(self, random: Random, arrays: dict[str, np.ndarray], names: Any) -> bytes:
        raise NotImplementedError


class Safetensors(FeatureFile):
    name, fast = "safetensors", True

    def prepare(self, intact: Path) -> None:
        z, y = (torch.from_numpy(array) for array in make_rows(N_ROWS))
        some = torch.where(torch.arange(N_ROWS) < 15, y, -1)
        facts = {"dataset": "folder", "backbone": "conv4"}
        tables = [
            FeatureTable(z, y, None, CLASSES, facts),
            FeatureTable(z.half(), some, z.mean(0), CLASSES),
            FeatureTable(z.double(), some, None, ()),
            FeatureTable(z.bfloat16(), y, None, CLASSES),
        ]
        for number, table in enumerate(tables):
            write_features(intact / f"table{number}.safetensors", table)
        scale = np.abs(z.numpy()).max(1) / 127
        small = (z.numpy() / scale[:, None]).round().astype(np.int8)
        arrays = {"features": small, "features_scale": scale, "labels": y.numpy()}
        write(intact / "table9.safetensors", save(arrays, {"class_names": json.dumps(CLASSES)}))
        packed, scales = pack(z.abs())
        arrays = {
            "features_4bit": packed.numpy(), "features_scale": scales.numpy(), "labels": y.numpy()
        }  # fmt: skip
        write(intact / "table8.safetensors", save(arrays, {"class_names": json.dumps(CLASSES)}))
        make_queries(intact)

    def damage(self, random: Random, content: bytes) -> tuple[bytes, str]:
        return damage_safetensors(random, content)

    def pack(self, random: Random, arrays: dict[str, np.ndarray], names: Any) -> bytes:
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return save(arrays, {"class_names": json.dumps(names)})


class Npz(FeatureFile):
    name, fast = "npz", True

    def prepare(self, intact: Path) -> None:
        z, y = make_rows(N_ROWS)
        some = np.where(np.arange(N_ROWS) < 15, y, -1)
        names = np.array(CLASSES)
        tables = [
            {"features": z, "labels": y, "class_names": names},
            {"f": z.astype(np.float16), "y": some, "base": z.mean(0)},
            {"features": np.asfortranarray(z.astype(np.float64)), "labels": some.astype(np.int32)},
        ]
        for number, table in enumerate(tables):
            members = {f"{name}.npy": to_npy(array) for name, array in table.items()}
            method = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[number % 2]
            write(intact / f"table{number}.npz", to_zip(members, method))
        make_queries(intact)

    def damage(self, random: Random, content: bytes) -> tuple[bytes, str]:
        return damage_npz(random, content)

    def pack(self, random: Random, arrays: dict[str, np.ndarray], names: Any) -> bytes:
        own = {**arrays, "class_names": _as_array(names)}
        if random.random() < 0.2:
            own["features"] = own["features"].astype(object)
        return to_zip({f"{name}.npy": to_npy(array) for name, array in own.items()})


def odd_table(random: Random) -> tuple[dict[str, np.ndarray], Any, str]:
    """Make arrays that can be stored but not used, or only with care."""
    z, y = make_rows(random.choice((1, 2, 10, N_ROWS)))
    arrays: dict[str, Any] = {"features": z, "labels": np.where(np.arange(len(y)) < 15, y, -1)}
    names: Any = list(CLASSES)
    how = random.choice(("value", "values", "label", "dtype", "shape", "names", "mean", "scale"))
    if how == "value":
        arrays["features"] = z.astype(random.choice((np.float32, np.float64)))
        arrays["features"][random.randrange(len(z)), 0] = random.choice(_VALUES)
    elif how == "values":
        arrays["features"] = np.full_like(z, random.choice(_VALUES))
    elif how == "label":
        arrays["labels"] = arrays["labels"].astype(np.int64)
        arrays["labels"][random.randrange(len(y)) :][: random.choice((1, 99))] = random.choice(
            _LABELS
        )
        names = random.choice((names, []))
    elif how == "dtype":
        key = random.choice(("features", "labels"))
        kinds = (
            np.bool_,
            np.int8,
            np.uint8,
            np.uint16,
            np.int32,
            np.uint64,
            np.float16,
            np.float64,
        )
        arrays[key] = arrays[key].astype(random.choice(kinds))
    elif how == "shape":
        key = random.choice(("features", "labels"))
        arrays[key] = random.choice(
            (arrays[key][:0], arrays[key][None], arrays[key].ravel(), arrays[key][:1])
        )
    elif how == "names":
        names = random.choice((["cat"] * 5, ["cat"], {"a": 1}, [["cat"]] * 5, [1, 2, 3, 4, 5], "cat", None, [random.choice(TEXTS) for _ in range(5)], [f"{i}" for i in range(5000)]))  # fmt: skip
    elif how == "mean":
        arrays["base_mean"] = random.choice(
            (z.mean(0) * np.nan, z.mean(0)[:3], z, z.mean(0).astype(np.int32))
        )
    else:
        arrays |= {
            "features": z.astype(np.int8),
            "features_scale": random.choice((z[:, 0], z[0], z)),
        }
    return arrays, names, f"odd {how}"


def _as_array(names: Any) -> np.ndarray:
    try:
        return np.array(names)
    except ValueError:  # lists of different lengths
        return np.array(names, dtype=object)


def make_queries(folder: Path) -> None:
    """Write a support file and a folder with one shard, for commands that need one."""
    make_support(folder / "support.safetensors")
    stream = io.BytesIO()
    np.save(stream, make_rows(20, seed=1)[0])
    write(folder / "queries" / "part.npy", stream.getvalue())


def _read(_: Case, path: Path) -> None:
    table = read_features(path)
    assert table.features.ndim == 2
    assert table.features.isfinite().all()
    assert table.labels.shape == (len(table.features),)
    assert int(table.labels.min()) >= -1
    assert not table.class_names or len(table.class_names) > int(table.labels.max())


def _solve(case: Case, path: Path) -> None:
    out = case.work / "labels.csv"
    method = case.random.choice(("tim-auto", "tim-adm", "prototype"))
    run_command("solve", "--features", path, "--out", out, "--method", method)
    n_unlabelled = int((read_features(path).labels == -1).sum())
    assert len(out.read_text().splitlines()) == 1 + n_unlabelled


def _bench(case: Case, path: Path) -> None:
    run_command(
        "bench", "--features", path, "--methods", "prototype,tim-adm", "--ways", 2, "--shots", 1,
        "--queries", 2, "--tasks", 3, "--json", case.work / "rows.json", "--threads", 1,
    )  # fmt: skip
    assert len(json.loads((case.work / "rows.json").read_text())) == 2


def _support(case: Case, path: Path) -> None:
    case.copy("queries")
    run_command(
        "solve-shards",
        "--support",
        path,
        "--queries",
        "queries",
        "--out",
        "out",
        "--set",
        "n_steps=3",
    )
    assert (case.work / "out" / "run.json").exists()


def _reproduce(case: Case, path: Path) -> None:
    run_command(
        "reproduce", "--features", path, "--out", "report", "--only", "table1", "--tasks", 1,
        "--gradient-tasks", 1, "--dataset", "folder", "--backbone", "resnet18",
    )  # fmt: skip


KINDS = (Safetensors(), Npz())
