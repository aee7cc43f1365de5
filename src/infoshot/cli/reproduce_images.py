"""What ``infoshot reproduce`` does with images: opens the network, extracts its features."""

from pathlib import Path

from infoshot.backbones.checkpoints import open_checkpoint
from infoshot.cli._console import progress_bar, say
from infoshot.core.errors import InvalidArgumentError
from infoshot.features import write_features
from infoshot.features.extract import Extraction, split_features
from infoshot.images import open_dataset
from infoshot.reproduction.whole_network import Network


def open_network(
    checkpoint: Path | None, root: Path | None, dataset: str | None, device: str
) -> Network | None:
    """The network and the test images, if they are given."""
    if checkpoint is None and root is None:
        return None
    if checkpoint is None or root is None:
        raise InvalidArgumentError("--checkpoint and --root must be given together.")
    name = dataset or "mini-imagenet"
    how = Extraction(device=device)
    network = open_checkpoint(checkpoint, None)
    how.sizes(network)
    return Network(name, open_dataset(name, root).split("test"), network, how)


def extracted(network: Network, out: Path) -> Path:
    """Features of the test images in the folder of the report, made if they are not there yet."""
    # Under the digest of the weights: features of another network are never overwritten.
    path = out / f"features-{network.checkpoint.digest[:8]}.safetensors"
    say(f"extracting features of {len(network.split.records):,} images ...")
    with progress_bar("images") as progress:
        bar = progress.add_task("extracting test", total=len(network.split.records))
        table = split_features(
            network.dataset,
            network.split,
            network.checkpoint,
            network.how,
            cache=out / "cache",
            on_progress=lambda n_done: progress.advance(bar, n_done),
        )
    assert table is not None
    write_features(path, table)
    return path
