"""The ``infoshot`` command: registers the commands and prints errors as one sentence."""

import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from infoshot.cli import (
    audit,
    bench,
    data,
    demo,
    extract,
    extract_shards,
    label,
    methods,
    predict,
    reproduce,
    solve,
    solve_shards,
    suggest,
    train,
)
from infoshot.cli._console import complain, stdout
from infoshot.cli._options import name_options
from infoshot.core.errors import InfoshotError, LostProcessError
from infoshot.distributed import exit_if_distributed
from infoshot.version import __version__

_RESUMING = dict.fromkeys(("label", "predict", "extract", "reproduce"), "resume.") | {
    "extract-shards": "resume after the last finished shard.",
    "train": "resume after the last epoch that was written.",
    "solve-shards": "resume after the last iteration that was written.",
}


class _Group(TyperGroup):
    """Turns exceptions of a command into one sentence on stderr and an exit code."""

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
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            how = _RESUMING.get(ctx.invoked_subcommand or "", "start from the beginning.")
            kept = "".join(f"{note}; " for note in getattr(stop, "__notes__", ()))
            complain("Interrupted", f"{kept}rerun the command to {how}")
            raise typer.Exit(130) from None
        except InfoshotError as error:
            complain("Error", self._in_options(ctx, str(error)))
            code = 1 if isinstance(error, LostProcessError) else 2
            exit_if_distributed(code)
            raise typer.Exit(code) from error
        except Exception as error:
            if isinstance(error, (typer.Exit, typer.Abort)) or hasattr(error, "exit_code"):
                raise  # raised by the parser
            first = str(error).split("\n", 1)[0]
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}, line {place.lineno}"
            complain(
                "Error",
                f"{type(error).__name__}: {first} ({where}; --debug shows the traceback).",
            )
            exit_if_distributed(1)
            raise typer.Exit(1) from error

    def _in_options(self, ctx: Any, message: str) -> str:  # noqa: ANN401 - click's context
        """Name options where a message of the library names arguments."""
        command: Any = self.get_command(ctx, ctx.invoked_subcommand or "")
        commands = [command, *getattr(command, "commands", {}).values()]
        options = {
            parameter.name: max(parameter.opts, key=len)
            for parameters in (getattr(each, "params", []) for each in commands)
            for parameter in parameters
            if parameter.opts and parameter.opts[0].startswith("-")
        }
        return name_options(message, options)


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


app.command("demo")(demo.demo)
app.command("label")(label.label)
app.command("audit")(audit.audit)
app.command("suggest")(suggest.suggest)
app.command("predict")(predict.predict)
app.add_typer(data.data, name="data")
app.command("train")(train.train_backbone)
app.command("extract")(extract.extract)
app.command("extract-shards")(extract_shards.extract_shards)
app.command("bench")(bench.bench)
app.command("reproduce")(reproduce.reproduce)
app.command("solve")(solve.solve_file)
app.command("solve-shards")(solve_shards.solve_shards_command)
app.command("methods")(methods.list_methods)


def main() -> None:
    """Entry point; ``--debug`` is accepted anywhere."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if len(arguments) < len(sys.argv) - 1:
        arguments.insert(0, "--debug")
    app(args=arguments, prog_name="infoshot")
