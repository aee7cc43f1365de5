"""The commands as a user runs them, and what they write."""

import csv

from typer.testing import CliRunner

from infoshot.cli.app import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
