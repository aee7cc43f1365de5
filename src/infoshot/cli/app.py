"""The ``infoshot`` command: registers the commands and prints errors as one sentence."""

import io
import sys
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from infoshot.cli._commands import COMMANDS
from infoshot.cli._console import complain, end_if_nobody_reads, stdout
from infoshot.cli._options import list_options, name_options
from infoshot.core import interrupts
from infoshot.core.errors import InfoshotError, LostProcessError
from infoshot.core.job_variables import check_job
from infoshot.version import __version__

_RESUMING = dict.fromkeys(("label", "review", "predict", "extract", "reproduce"), "resume.") | {
    "extract-shards": "resume after the last finished shard.",
    "train": "resume after the last epoch that was written.",
    "solve-shards": "resume after the last iteration that was written.",
}


class _Group(TyperGroup):
    """Turns exceptions of a command into one sentence on stderr and an exit code."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - those of typer
        super().__init__(**settings)
        for name, (_, sentence) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=sentence))  # for the list of commands

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as in typer
        """Import the command that is asked for."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = self.commands[name] = load_command(name)
            interrupts.raise_exceptions()
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's context and result
        """Run the command; exit with 2 for wrong usage or bad input, with 1 for a failure."""
        if ctx.params.get("debug"):
            return super().invoke(ctx)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", UserWarning)  # those of the library, every time
                warnings.showwarning = lambda message, *_: complain(
                    "Warning", self._in_options(ctx, str(message))
                )
                check_job()
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            how = _RESUMING.get(ctx.invoked_subcommand or "", "start from the beginning.")
            kept = "".join(f"{note}; " for note in getattr(stop, "__notes__", ()))
            complain("Interrupted", f"{kept}rerun the command to {how}")
            raise typer.Exit(130) from None
        except InfoshotError as error:
            end_if_nobody_reads(error)
            complain("Error", self._in_options(ctx, str(error)))
            code = 1 if isinstance(error, LostProcessError) else 2
            _exit_if_distributed(code)
            raise typer.Exit(code) from error
        except Exception as error:
            if isinstance(error, (typer.Exit, typer.Abort)) or hasattr(error, "exit_code"):
                raise  # raised by the parser
            end_if_nobody_reads(error)
            first = str(error).split("\n", 1)[0]
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}, line {place.lineno}"
            complain(
                "Error",
                f"{type(error).__name__}: {first} ({where}; --debug shows the traceback).",
            )
            _exit_if_distributed(1)
            raise typer.Exit(1) from error

    def _in_options(self, ctx: Any, message: str) -> str:  # noqa: ANN401 - click's context
        """Name options where a message of the library names arguments."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        return name_options(message, list_options(command))


app = typer.Typer(
    cls=_Group,
    help="Label many samples from a handful of examples (transductive information maximization).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        stdout().print(f"infoshot {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Options before any command."""


def load_command(name: str) -> Any:  # noqa: ANN401 - a command or a group of typer
    """Import a command."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"infoshot.cli.{module}"), attribute)
    own = typer.Typer()
    if isinstance(found, typer.Typer):
        own.add_typer(found, name=name)
    else:
        own.command(name)(found)
    return typer.main.get_group(own).commands[name]


def _exit_if_distributed(code: int) -> None:
    """See :func:`infoshot.distributed.exit_if_distributed`; PyTorch is not loaded for it."""
    if "torch.distributed" in sys.modules:
        from infoshot.distributed import exit_if_distributed

        exit_if_distributed(code)


def main() -> None:
    """Run the command; ``--debug`` is accepted anywhere."""
    for stream in (sys.stdout, sys.stderr):  # an encoding such as ASCII lacks most characters
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if len(arguments) < len(sys.argv) - 1:
        arguments.insert(0, "--debug")
    app(args=arguments, prog_name="infoshot")
