r"""Class names as examples: the text of a class, moved to where images are, counts as examples.

The prototype of a class is the mean of the unit features of several sentences with its name, scaled
to unit length. Encoders such as CLIP embed texts and images in different regions, so prototypes are
moved by the mean difference between images and their texts,

.. math:: \tilde t_k = r \, (t_k + g), \qquad g = \frac{1}{N} \sum_i \left(x_i - t_{a(i)}\right),

over all images, with their unit features :math:`x_i`: :math:`a(i)` is the class of an example, and
the most similar text of an unlabelled image. r is the mean length of the features of images. Every
moved prototype then counts as several equal examples. ``docs/math.md`` says why, and what was not
measured.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from infoshot.backbones import Encoder
from infoshot.backbones.external.text_tower import TextTower, open_text_tower
from infoshot.core.errors import DataError
from infoshot.features.cache import FeatureCache, FeatureMemory
from infoshot.version import __version__

TEMPLATES = (
    "a photo of a {}.",
    "a photo of the {}.",
    "a close-up photo of a {}.",
    "a cropped photo of a {}.",
    "a bright photo of a {}.",
    "a dark photo of a {}.",
    "a photo of many {}.",
)
DEFAULT_WEIGHT = 4  # examples; docs/math.md says why


@dataclass(frozen=True, eq=False)
class NameEncoder:
    """Computes the features of class names, or reads them from the cache.

    Parameters
    ----------
    provenance
        Everything that the features depend on besides the name, see :func:`text_provenance`.
    open_tower
        Returns the text tower; called only if a name is not in the cache.
    """

    provenance: Mapping[str, str]
    open_tower: Callable[[], TextTower]

    def encode(
        self, names: Sequence[str], weight: int, cache: Path, memory: FeatureMemory | None = None
    ) -> "TextPrototypes":
        """Return the prototypes of classes; each counts as ``weight`` examples."""
        store = FeatureCache(cache, self.provenance, memory=memory)
        digests = [hashlib.sha256(name.encode()).hexdigest() for name in names]
        found = store.read(digests)
        new = {key: name for key, name in zip(digests, names, strict=True) if key not in found}
        if new:
            rows = _encode_names(self.open_tower(), list(new.values()))
            store.add(list(new), rows)
            found |= dict(zip(new, rows, strict=True))
        return TextPrototypes(names, torch.stack([found[digest] for digest in digests]), weight)


def open_names(encoder: Encoder) -> NameEncoder:
    """Open the text tower of an encoder; raise ``InvalidArgumentError`` if it has none."""
    tower = open_text_tower(encoder)
    return NameEncoder(text_provenance(encoder.backbone_name, tower), lambda: tower)


def text_provenance(backbone: str, tower: TextTower) -> dict[str, str]:
    """Everything that the prototype of a class depends on besides its name, as text."""
    return {
        "backbone": backbone,
        "weights_sha256": tower.digest,
        "transform": f"mean of: {' '.join(TEMPLATES)}",
        "infoshot": __version__,
    }


def check_same_tower(backbone: str, tower: TextTower, provenance: Mapping[str, str]) -> TextTower:
    """Return a text tower; raise ``DataError`` if its features are not of this provenance."""
    now = text_provenance(backbone, tower)
    if any(now[key] != provenance[key] for key in ("weights_sha256", "transform")):
        raise DataError(
            f"the text tower of '{backbone}' has changed since the run; label the images again."
        )
    return tower


@dataclass(frozen=True, eq=False)
class TextPrototypes:
    """The texts of classes.

    Parameters
    ----------
    names
        The classes.
    rows
        Their prototypes, of unit length, shape ``(class, dim)``.
    weight
        Number of examples that each of them counts as.
    """

    names: Sequence[str]
    rows: Tensor
    weight: int

    def append(
        self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, classes: Sequence[str]
    ) -> tuple[Tensor, Tensor]:
        """Append the moved prototypes to the examples, each as often as its weight says.

        Parameters
        ----------
        z_sup, y_sup
            Features of the examples as the encoder gives them, shape ``(example, dim)``, and their
            classes; there may be none.
        z_qry
            Features of the unlabelled images.
        classes
            The classes that ``y_sup`` numbers. Some may have no text.

        Examples
        --------
        >>> images = torch.tensor([[0.0, 2.0], [2.0, 0.0]])  # of length 2
        >>> texts = TextPrototypes(("cat", "dog"), torch.eye(2), weight=1)
        >>> nothing = torch.empty(0, 2), torch.empty(0, dtype=torch.int64)
        >>> texts.append(*nothing, images, ("cat", "dog"))
        (tensor([[2., 0.],
                [0., 2.]]), tensor([0, 1]))
        """
        images = torch.cat((z_sup.reshape(len(y_sup), z_qry.shape[1]), z_qry))
        x = normalize(images, dim=1)
        text_of = {classes.index(name): number for number, name in enumerate(self.names)}
        own = torch.tensor([text_of.get(label, -1) for label in y_sup.tolist()], dtype=torch.int64)
        pairs = torch.cat((own, (x[len(own) :] @ self.rows.mT).argmax(1)))
        paired = pairs >= 0
        gap = (x[paired] - self.rows[pairs[paired]]).mean(0)
        moved = (self.rows + gap) * images.norm(dim=1).mean()
        y_text = torch.tensor([*text_of]).repeat_interleave(self.weight)
        z_text = moved.repeat_interleave(self.weight, 0)
        return torch.cat((images[: len(own)], z_text)), torch.cat((y_sup, y_text))


def _encode_names(tower: TextTower, names: Sequence[str]) -> Tensor:
    """Average the unit features of all sentences of each name; return unit length."""
    spoken = [name.replace("_", " ") for name in names]
    sentences = [template.format(name) for name in spoken for template in TEMPLATES]
    rows = normalize(tower.encode(sentences), dim=1).view(len(names), len(TEMPLATES), -1)
    prototypes = normalize(rows.mean(1), dim=1)
    if not prototypes.isfinite().all():
        raise DataError("the text tower gives features that are not finite.")
    return prototypes
