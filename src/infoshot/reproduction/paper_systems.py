"""The paper's systems that train their own network, and what fills their rows here.

A row is filled by a *run* of a system that was trained on episodes (``infoshot train`` writes it),
or by a *recipe* of base training whose features a *method* classifies. Everything else in the
tables works on the network of plain base training, which all methods share.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from infoshot.backbones.backbone import EPISODES

PLAIN = ""
"""The recipe of plain base training: a linear classifier and the smoothed cross-entropy."""
_ADDS_QUERIES = "+t"


@dataclass(frozen=True)
class SystemForm:
    """A form in which a trained system classifies, one row of a table.

    Attributes
    ----------
    name
        The name of the system, with ``+t`` if confident queries join the support.
    reads
        What it reads of an image: ``vectors``, ``maps`` or ``images``.
    transductive
        Whether it uses all queries together.
    title
        How tables call it, if the paper does not print it.
    assumes
        What it assumes about the queries.
    """

    name: str
    reads: str
    transductive: bool
    title: str = ""
    assumes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PaperSystem:
    """A system of the paper's tables, and what fills its row.

    Attributes
    ----------
    printed
        Its names in the tables, which spell some of them differently.
    run
        The form of a trained system that fills the row.
    recipe, method
        The base training and the method over its features that fill the row.
    variant
        How they differ from what the paper compares with; empty if they do not.
    missing
        Why the published numbers cannot be computed.
    meta
        Whether it is trained on episodes (meta-learning).
    """

    printed: tuple[str, ...]
    run: str = ""
    recipe: str = PLAIN
    method: str = ""
    variant: str = ""
    missing: str = ""
    meta: bool = True

    def is_filled_by(self, recipe: str) -> bool:
        """Whether networks of this recipe are those of the system."""
        own = recipe_of_run(self.run.removesuffix(_ADDS_QUERIES)) if self.run else self.recipe
        return not self.missing and recipe_kind(recipe) == own


_NO_CODE = "no public code is known"
SYSTEMS_OF_PAPER = (
    PaperSystem(printed=("MAML",), run="maml"),
    PaperSystem(printed=("RelatNet",), run="relatnet"),
    PaperSystem(printed=("MatchNet",), run="matchnet"),
    PaperSystem(printed=("ProtoNet",), run="protonet"),
    PaperSystem(printed=("MTL",), run="mtl"),
    PaperSystem(printed=("vFSL",), missing=_NO_CODE),
    PaperSystem(printed=("MetaOpt",), run="metaopt"),
    PaperSystem(printed=("RelatNet + T",), run="relatnet+t"),
    PaperSystem(printed=("ProtoNet + T",), run="protonet+t"),
    PaperSystem(printed=("MatchNet+T",), run="matchnet+t"),
    PaperSystem(printed=("TPN",), run="tpn"),
    PaperSystem(printed=("TEAM",), missing=_NO_CODE),
    PaperSystem(printed=("CAN+T",), run="can+t"),
    PaperSystem(printed=("LEO",), run="leo"),
    PaperSystem(printed=("FEAT",), run="feat"),
    PaperSystem(printed=("AWGIM",), run="awgim"),
    PaperSystem(printed=("SIB",), run="sib"),
    PaperSystem(printed=("GNN",), run="gnn"),
    PaperSystem(
        printed=("Neg-cosine", "Neg-Cosine"),
        recipe="cosine fixed, margin",
        method="neg-cosine",
        meta=False,
    ),
    PaperSystem(printed=("Distill",), recipe="distilled", method="distill", meta=False),
    PaperSystem(
        printed=("CC+rot+unlabeled",),
        recipe="cosine learned, rotation",
        method="prototype",
        variant="without unlabelled images",
        meta=False,
    ),
    PaperSystem(printed=("BD-CSPN",), recipe="cosine learned", method="bd-cspn", meta=False),
    PaperSystem(printed=("Baseline",), recipe="not smoothed", method="baseline-sgd", meta=False),
    PaperSystem(
        printed=("Baseline++",), recipe="cosine per-class", method="baseline++-sgd", meta=False
    ),
)
_BY_NAME = {name: system for system in SYSTEMS_OF_PAPER for name in system.printed}


def system_of(printed: str) -> PaperSystem | None:
    """Return the system of this name in the tables; ``None`` if it trains no network of its own.

    Examples
    --------
    >>> system_of("ProtoNet + T").run, system_of("TIM-ADM")
    ('protonet+t', None)
    """
    return _BY_NAME.get(printed)


def recipe_of_run(system: str, *differences: str) -> str:
    """Return the recipe of networks that were trained as part of a system.

    ``differences`` say how the training differs from that of the system; such a run is a variant.

    Examples
    --------
    >>> recipe_of_run("feat", "frozen backbone")
    'episodes of feat, frozen backbone'
    """
    return ", ".join((EPISODES + system, *differences))


def differences_of_run(recipe: str) -> str:
    """Return how the training of a run differs from that of its system; empty if it does not."""
    return recipe.partition(", ")[2]


def has_own_training(recipe: str) -> bool:
    """Whether networks of a recipe are those of a system, and only fill its rows."""
    return any(systems_of_recipe(recipe)) or recipe.startswith(EPISODES)


def adds_queries(form: str, other: str) -> bool:
    """Whether a form is another one with confident queries added."""
    return form == other + _ADDS_QUERIES


def with_queries(system: str) -> str:
    """Return the name of the form of a system with confident queries."""
    return system + _ADDS_QUERIES


def recipe_kind(recipe: str) -> str:
    """Return a recipe without its numbers.

    Examples
    --------
    >>> recipe_kind("cosine fixed, margin -0.02")
    'cosine fixed, margin'
    """
    return re.sub(r" -?[\d.]+(e-?\d+)?", "", recipe)


def printed_names(run: str) -> Iterator[str]:
    """Yield the names that the paper prints for a form of a trained system."""
    for system in SYSTEMS_OF_PAPER:
        if system.run == run:
            yield from system.printed


def systems_of_recipe(recipe: str) -> Iterator[PaperSystem]:
    """Yield the systems whose rows features of a recipe fill."""
    for system in SYSTEMS_OF_PAPER:
        if system.method and system.is_filled_by(recipe):
            yield system
