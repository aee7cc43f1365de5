"""The first second of a command: late imports, interrupts, and the list of commands."""

import ast
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

import infoshot
from infoshot.cli.app import app

# Interrupts itself when a module is imported for the first time.
INTERRUPTED = """
import os, signal, sys, time
module = sys.argv.pop(1)

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

sys.meta_path.insert(0, Interrupt())
from infoshot.__main__ import main
main()
"""
# Gets an interrupt while an object is freed, where Python prints and drops exceptions.
DROPPED = """
import os, signal, time
from infoshot.core import interrupts

class Freed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

interrupts.end_at_once()
interrupts.raise_exceptions()
try:
    Freed()
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
LINE = "Interrupted: stopped.\n"
LONG = ["bench", "--methods", "tim-gd", "--tasks", "1000000", "--threads", "1"]


@contextmanager
def started(*arguments, **options):
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, **options,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("module", ["typer", "rich.table", "infoshot.cli.bench", "torch", "numpy"])
def test_an_interrupt_during_an_import_is_one_line(module):
    with started("-c", INTERRUPTED, module, *LONG) as process:
        assert process.communicate(timeout=60) == ("", LINE)
    assert process.returncode == 130


def test_an_interrupt_while_an_object_is_freed_is_not_dropped():
    with started("-c", DROPPED) as process:
        assert process.communicate(timeout=50) == ("interrupted\n", "")


def test_an_ignored_interrupt_stays_ignored():
    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with started("-c", INTERRUPTED, "typer", "--version", preexec_fn=ignore) as process:
        out, error = process.communicate(timeout=60)
    assert (out, error, process.returncode) == (f"infoshot {infoshot.__version__}\n", "", 0)


@pytest.mark.parametrize("delay", [0.05, 0.3, 0.8, 1.5])
def test_an_interrupt_at_any_moment_is_one_line(delay):
    code = f"print('started', flush=True)\n{INTERRUPTED}"
    for _ in range(5):
        with started("-c", code, "no module", *LONG) as process:
            assert process.stdout.readline() == "started\n"
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
        if "Traceback" not in error or "site-packages" in error:
            break
        delay *= 2  # so slow a machine that our own code had not begun
    # On a fast machine the command may be at work already, and says how to start again.
    assert [line.startswith("Interrupted: ") for line in error.splitlines()][-1:] == [True]
    assert error.count("Interrupted: ") == 1
    assert "Traceback" not in error
    assert process.returncode == 130


def test_help_and_version_do_not_load_pytorch():
    code = (
        "import sys, infoshot.cli.app as cli\n"
        "for option in ('--version', '--help', '--wrong'):\n"
        "    try:\n"
        "        cli.app([option])\n"
        "    except SystemExit:\n"
        "        pass\n"
        "sys.exit(sorted({'torch', 'numpy', 'sklearn', 'PIL'} & set(sys.modules)) or None)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Label images from a few examples" in result.stdout


def test_the_list_of_commands_has_the_first_sentences_of_their_help():
    group = typer.main.get_command(app)
    context = group.make_context("infoshot", ["methods"])
    for name in group.list_commands(context):
        listed = group.get_command(context, name)
        _, command, _ = group.resolve_command(context, [name])
        assert command.name == name
        assert " ".join(command.help.split("\n\n")[0].split()) == listed.help


def test_public_names_have_the_types_that_checkers_see():
    source = Path(infoshot.__file__).read_text()
    (block,) = (node for node in ast.parse(source).body if isinstance(node, ast.If))
    seen = {name.name: node.module for node in block.body for name in node.names}
    assert {*seen, "__version__"} == set(infoshot.__all__)
    for name, module in seen.items():
        home = __import__(module, fromlist=[name])
        assert getattr(infoshot, name) is getattr(home, name)
    assert infoshot.labelling.label is infoshot.label
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        infoshot.nothing  # noqa: B018
