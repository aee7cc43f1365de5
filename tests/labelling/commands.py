"""The commands as a user runs them, and the CSV files they write."""

import csv

from typer.testing import CliRunner


def run(*arguments):
    """Run a command; the command line is imported here, so that other tests do not need it."""
    from infoshot.cli.app import app

    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def rows(path):
    """Read a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
