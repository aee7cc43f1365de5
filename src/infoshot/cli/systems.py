"""``infoshot systems``: list the few-shot systems that can be trained."""

import json as json_format
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from infoshot.cli._console import stdout
from infoshot.cli.methods import describe_assumptions
from infoshot.core.outputs import write_output
from infoshot.core.setting_text import format_setting
from infoshot.labelling.output_checks import check_results
from infoshot.training.episodic.registry import STARTS, SYSTEMS, TRAINS, make_head

_READS = {
    "vectors": "feature vectors; bench can run it as system:FOLDER",
    "maps": "feature maps",
    "images": "images, since it changes the network for every task",
}


def list_systems(
    json: Annotated[Path | None, typer.Option(help="Write the list to this JSON file.")] = None,
) -> None:
    """List the few-shot systems that train a network: what each needs, and its settings.

    Example: infoshot systems
    """
    check_results([], [json])
    entries = []
    for system in SYSTEMS.values():
        head = make_head(system.name, dim=64, n_base_classes=2)
        entries.append(
            {
                "system": system.name,
                "title": system.title,
                "does": system.summary,
                "trains": system.trains,
                "starts_from": system.starts_from,
                "needs_init": system.needs_init,
                "reads": head.reads,
                "transductive": head.transductive,
                "assumes": head.assumes,
                "settings": dict(system.settings),
                "head_settings": system.head_settings(),
                "reference": system.reference,
            }
        )
    if json:
        write_output(json, json_format.dumps(entries, indent=1) + "\n")
    stdout().print(
        "Train one with: infoshot train ... --system NAME. A head of your own is named "
        "package.module:Name.\n"
    )
    for entry in entries:
        stdout().print(_block(entry))


def _block(entry: Mapping[str, Any]) -> str:
    """A few lines about one system, readable at any width."""
    head = {f"head.{name}": value for name, value in entry["head_settings"].items()}
    settings = ", ".join(
        f"{name}={format_setting(value)}" for name, value in {**head, **entry["settings"]}.items()
    )
    together = entry["transductive"]
    init = "needs --init" if entry["needs_init"] else "--init is optional"
    lines = [
        f"{entry['system']}: {entry['title']}, {entry['does']}",
        f"  trains       {TRAINS[entry['trains']]}",
        f"  starts from  {STARTS[entry['starts_from']]}; {init}",
        f"  reads        {_READS[entry['reads']]}",
        f"  assumes      {describe_assumptions(entry['assumes'])}",
        f"  queries      {'classified together' if together else 'classified independently'}",
        f"  settings     {settings}",
        f"  reference    {entry['reference']}",
    ]
    return "\n".join(lines)
