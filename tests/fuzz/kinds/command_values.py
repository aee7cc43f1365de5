"""Values of the arguments and options of every command, taken from the commands themselves."""

import os
import shutil
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import torch

from infoshot import FeatureTable, write_features
from infoshot.cli._commands import COMMANDS
from infoshot.cli.app import load_command
from tests.fuzz.kinds.features import N_ROWS, make_queries
from tests.fuzz.kinds.made import RUN, make_image, make_rows, make_run, make_support, write
from tests.fuzz.mutations import TEXTS
from tests.fuzz.runner import Case, Kind, run_command

_FILES = (
    *RUN, "features.safetensors", "support.safetensors", "unlabelled.safetensors", "queries", "data",
    "file.txt",
)  # fmt: skip
_DATA = ("--dataset", "folder", "--root", "data")
_LABEL = ("--backbone", "weights", "--cache", "cache", "--device", "cpu")
# A small call of every command that succeeds.
CALLS: dict[str, tuple[str, ...]] = {
    "audit": ("run",),
    "bench": ("--features", "support.safetensors", "--ways", "2", "--shots", "1", "--queries", "1",
              "--tasks", "2", "--json", "rows.json"),
    "data inspect": _DATA,
    "demo": ("--out", "file.txt"),  # refused: it takes minutes
    "extract": (*_DATA, "--split", "train", "--checkpoint", "weights", "--out", "f.safetensors"),
    "extract-shards": ("photos", "--out", "new", "--backbone", "weights"),
    "label": ("examples", "photos", "--out", "new", *_LABEL),
    "methods": (),
    "predict": ("run", "photos", "--out", "new.csv"),
    "reproduce": ("--features", "features.safetensors", "--out", "new", "--only", "table1", "--tasks",
                  "1", "--gradient-tasks", "1", "--dataset", "folder", "--backbone", "resnet18"),
    "solve": ("--features", "unlabelled.safetensors", "--out", "labels.csv"),
    "solve-shards": ("--support", "support.safetensors", "--queries", "queries", "--out", "new",
                     "--set", "n_steps=3"),
    "suggest": ("run", "--n", "2"),
    "train": (*_DATA, "--backbone", "conv4", "--out", "new", "--epochs", "1", "--batch-size", "4"),
}  # fmt: skip
# What these calls read; it stays as it is, whatever the other arguments are.
_INPUTS = {
    "audit": {"run"}, "bench": {"support.safetensors"}, "data inspect": {"data"},
    "extract": {"data", "weights"}, "extract-shards": {"photos", "weights"},
    "label": {"examples", "photos", "weights"}, "predict": {"run", "photos"},
    "reproduce": {"features.safetensors"}, "solve": {"unlabelled.safetensors"},
    "solve-shards": {"support.safetensors", "queries"}, "suggest": {"run"}, "train": {"data"},
}  # fmt: skip
# Compiling takes a minute; the others start work that is asked for and takes as long as it takes.
_LEFT_ALONE = {"compile", "tensorboard", "help", "version"}
_MAY_TAKE_LONG = {"epochs", "network_tasks", "gradient_tasks"}

_NUMBERS = (
    "-1", "0", "1", "3", "-0", "1.5", "1e3", "nan", "inf", "-inf", "", " 5", "0x10", "1_000", "5,",
    "1,1,1", ",", "\u0665", "1e400", "99999999999999999999", "2147483648", "9223372036854775808",
    "1000000000000", "100000", "65536", "-9223372036854775809",
)  # fmt: skip
_PATHS = (
    ".", "..", "", "file.txt", "file.txt/x", "nothing", "nothing/x", "pipe", "null", "loop", "folder",
    "dangling", "a" * 300, "run", "run/run.json", "run/labels.csv", "photos", "support.safetensors",
    "examples", "weights", "weights/checkpoint.json", "cache", "data", "queries", "given.csv",
    "/proc/none/x", "/proc/version", "new\nline", "es\x1bcape", "\udcff", " ", "-", "no-permission/x",
)  # fmt: skip
_WORDS = (
    "tim-adm", "tim-auto", "prototype", "all", "tim-adm,tim-adm", "tim-adm(temperature=nan)",
    "tim-adm(", "tim-adm()", "tim-gd(n_steps=0)", "os:getcwd", "math:pi", "json:loads", "nothing:At",
    "infoshot:TimAdm", ":", "a:", ":a", "conv4", "efficientnet-lite0x", "onnx:file.txt", "onnx:nothing",
    "hf:nothing", "timm:nothing", "weights", "balanced", "dirichlet:0", "dirichlet:nan", "dirichlet:1e-9",
    "effective:0", "effective:99", "few:0", "few:1000000000", "open:-1", "open:1000000", "regime:1",
    "temperature=0", "temperature=nan", "temperature=-1", "temperature=1e308", "n_steps=-1", "n_steps=x",
    "class_prior=1,2", "class_prior=nan,1,1", "tolerance=-1", "n_steps=[[1]]", "temperature", "=",
    "a=" + "[" * 9999, "temperature=" + "9" * 5000, "lr=0", "schedule=none", "momentum=2",
    "cat=0.5,dog=0.5", "cat=1,dog=1,eel=1", "cat=0", "cat=nan,dog=1,eel=1", "table1", "table9",
    "imagefolder", "fiftyone", "cpu", "cuda", "cuda:99", "cpu:7", "meta", "mps", "xpu", "vulkan", "",
    "float16", "float64", "float8", "train", "val", "test", "cub", "mini-imagenet", "folder",
)  # fmt: skip


class CommandValues(Kind):
    """A command that would succeed, with one to three other values."""

    name = "command"

    def prepare(self, intact: Path) -> None:
        make_run(intact)
        make_support(intact / "support.safetensors")
        make_queries(intact)
        _make_features(intact / "features.safetensors", N_ROWS, N_ROWS)
        _make_features(intact / "unlabelled.safetensors", 20, 10)
        for number in range(8):
            split, names = (("train", "ab"), ("val", "cd"))[number // 4]
            write(intact / "data" / split / names[number % 2] / f"{number}.png", make_image(number))
        write(intact / "file.txt", "text\n")

    def check(self, case: Case) -> None:
        case.copy(*_FILES)
        for command, arguments in CALLS.items():
            if command != "demo":
                run_command(*command.split(), *arguments)
                shutil.rmtree("new", ignore_errors=True)

    def attempt(self, case: Case) -> None:
        case.copy(*_FILES)
        _make_odd_files()
        command = case.random.choice(sorted(CALLS))
        arguments = _arguments(case, command)
        case.note(f"infoshot {command} {' '.join(repr(argument)[:60] for argument in arguments)}")
        before = _content(_INPUTS.get(command, set()) & set(arguments))
        try:
            run_command(*command.split(), *arguments)
        finally:
            after = _content(before)
            assert after == before, "an input has changed"


def _make_features(path: Path, n_rows: int, n_labelled: int) -> None:
    z, y = make_rows(n_rows)
    y[n_labelled:] = -1
    write_features(path, FeatureTable(torch.from_numpy(z), torch.from_numpy(y)))


def _make_odd_files() -> None:
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    Path("dangling").symlink_to("nowhere/at/all")
    Path("folder").mkdir()
    Path("no-permission").mkdir(mode=0)
    if os.geteuid() == 0:
        os.mknod("null", 0o020666, os.makedev(1, 3))  # like /dev/null


def _content(names: Iterable[str]) -> dict[str, bytes]:
    """Read the files with these names, and those in folders with these names."""
    paths = [path for name in names for path in (Path(name), *sorted(Path(name).rglob("*")))]
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


def _arguments(case: Case, command: str) -> list[str]:
    """Change one to three values of the call of a command, or add options to it."""
    arguments, parameters = list(CALLS[command]), _parameters(command)
    if not parameters:
        return [case.random.choice(TEXTS[:30]).replace("\0", "")]
    for _ in range(case.random.choice((1, 1, 2, 3))):
        name, option, kind = case.random.choice(parameters)
        value = _value(case, command, name, kind)
        if not option:
            places = [i for i in range(len(arguments)) if not _is_option_or_value(arguments, i)]
            arguments[case.random.choice(places)] = value
        elif "bool" in kind:
            arguments.append(option)
        elif option in arguments:
            arguments[arguments.index(option) + 1] = value
        else:
            arguments += [option, value]
    return arguments


def _is_option_or_value(arguments: list[str], place: int) -> bool:
    before = arguments[place - 1] if place else ""
    return arguments[place].startswith("-") or before.startswith("--")


def _parameters(command: str) -> list[tuple[str, str, str]]:
    """List name, option (or "") and type of every parameter of a command."""
    name, *rest = command.split()
    module, _, attribute = COMMANDS[name][0].partition(":")
    function: Any = getattr(import_module(f"infoshot.cli.{module}"), attribute)
    found = load_command(name)
    for part in rest:
        function = next(i.callback for i in function.registered_commands if i.name == part)
        found = found.commands[part]
    kinds = {name: str(hint) for name, hint in get_type_hints(function).items()}
    options = {p.name: max(p.opts, key=len) for p in found.params if p.name in kinds}
    return [
        (name, option if option.startswith("-") else "", kinds[name])
        for name, option in options.items()
        if name not in _LEFT_ALONE
    ]


def _value(case: Case, command: str, name: str, kind: str) -> str:
    """Choose a value, mostly of the type of the parameter."""
    random = case.random
    pool: tuple[str, ...] = _PATHS
    if "str" in kind:
        pool = _NUMBERS if random.random() < 0.3 else _WORDS
    elif "int" in kind or "float" in kind:
        pool = _NUMBERS
    if random.random() < 0.1:
        pool = TEXTS[:50]
    if name in _MAY_TAKE_LONG:
        pool = tuple(text for text in _NUMBERS if len(text) < 4)
    if command == "demo":
        pool = ("file.txt", "file.txt/x", "pipe", "loop", "/proc/none/x", "null")
    return random.choice(pool).replace("\0", "")


KINDS = (CommandValues(),)
