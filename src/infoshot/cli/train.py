"""``infoshot train``: base training, and episodic training of few-shot systems."""

from pathlib import Path
from typing import Annotated

import typer

from infoshot import training
from infoshot.cli import _options as given
from infoshot.cli._console import stdout
from infoshot.core.memory import keep_freed_memory
from infoshot.distributed import is_main_process
from infoshot.training.config_file import SETTINGS
from infoshot.training.episodic.episodic_config import SETTINGS as EPISODIC_SETTINGS


def train_backbone(
    dataset: given.Dataset,
    root: given.Root,
    backbone: Annotated[
        str,
        typer.Option(
            help="resnet18, wrn28-10, resnet12, conv4, efficientnet-lite0, efficientnet-lite2, or "
            "package.module:Name of your own network."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the run: checkpoints, logs, curve.")],
    system: Annotated[
        str | None,
        typer.Option(
            help="Train a few-shot system on episodes, such as protonet (infoshot systems lists "
            "them), or package.module:Name of your own head; default: base training."
        ),
    ] = None,
    init: Annotated[
        Path | None, typer.Option(help="Checkpoint that the backbone of the system starts from.")
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="paper: the published settings; small: for sets of a few thousand images, such as "
            "CUB; strong: with rotation prediction and manifold mixup; baseline++, neg-cosine, "
            "cc-rot, bd-cspn, distill: the base trainings of these systems. Not with --system."
        ),
    ] = "paper",
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with settings; overrides --recipe. The options and --set override it."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a setting, such as weight_decay=5e-4 or schedule=cosine; repeat --set for "
            f"several. Overrides --config and the options. Settings: {', '.join(SETTINGS)}. With "
            f"--system: {', '.join(EPISODIC_SETTINGS)}, and head.NAME for those of the head.",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Passes over the training images; default: 90. With --system: times "
            "episodes_per_epoch episodes."
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Images per step; default: 256, 128 for wrn28-10. With --system: tasks per step."
        ),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Initial learning rate; default: 0.1, or the system's.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of weights, order and augmentation; default: 0.")
    ] = None,
    teacher: Annotated[
        Path | None,
        typer.Option(help="Checkpoint to distil from, trained on the same classes."),
    ] = None,
    device: given.Device = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the network; pays off in long runs.")
    ] = False,
    splits: given.Splits = None,
    skip_broken: given.SkipBroken = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")
    ] = False,
) -> None:
    """Train a network on the train classes. The same command resumes an interrupted run.

    Example: infoshot train --dataset mini-imagenet --root data/mini-imagenet --backbone resnet18
    --out runs/resnet18

    A few-shot system: infoshot train ... --system protonet --out runs/protonet

    Several GPUs: torchrun --nproc-per-node 4 -m infoshot train ... (they share every batch).
    """
    keep_freed_memory()
    result = training.train(
        dataset,
        root,
        backbone,
        out,
        system=system,
        init=init,
        recipe=recipe,
        config=config,
        settings=given.parse_settings(settings) if settings else None,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        teacher=teacher,
        device=device,
        compile=compile,
        splits=splits,
        skip_broken=skip_broken,
        tensorboard=tensorboard,
        progress=True,
    )
    if is_main_process():
        _print_result(result)


def _print_result(result: training.TrainResult) -> None:
    """Print the best epoch and where the files are."""
    best = result.records[result.best_epoch - 1]
    if best.val_accuracy is not None:
        stdout().print(
            f"Best of {len(result.records)} epochs: {best.epoch}, validation accuracy "
            f"{best.val_accuracy:.2f} ± {best.val_ci95:.2f} % ({_rule(result)})",
            soft_wrap=True,
        )
    others = (result.log, result.csv, result.curve, result.config_file)
    names = ", ".join(path.name for path in others)
    stdout().print(f"Checkpoints: {result.best}, {result.last}; also {names}", soft_wrap=True)


def _rule(result: training.TrainResult) -> str:
    """Name what classifies the validation tasks."""
    config = result.config
    if isinstance(config, training.TrainConfig):
        return "nearest prototype"
    return f"{config.system}, {config.shots_of_validation()}-shot"
