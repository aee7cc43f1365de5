"""The methods of this package by name."""

from collections.abc import Mapping

from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.solvers.alpha_tim import AlphaTim
from infoshot.solvers.baselines.alpha_am import AlphaAm
from infoshot.solvers.baselines.baseline import Baseline
from infoshot.solvers.baselines.baseline_plus_plus import BaselinePlusPlus
from infoshot.solvers.baselines.baseline_plus_plus_sgd import BaselinePlusPlusSgd
from infoshot.solvers.baselines.baseline_sgd import BaselineSgd
from infoshot.solvers.baselines.bavardage import Bavardage
from infoshot.solvers.baselines.bd_cspn import BdCspn
from infoshot.solvers.baselines.label_propagation import LabelPropagation
from infoshot.solvers.baselines.laplacianshot import LaplacianShot
from infoshot.solvers.baselines.logistic_regression import LogisticRegression
from infoshot.solvers.baselines.matching import Matching
from infoshot.solvers.baselines.matching_t import MatchingT
from infoshot.solvers.baselines.meta_opt import MetaOpt
from infoshot.solvers.baselines.oslo import Oslo
from infoshot.solvers.baselines.ostim import Ostim
from infoshot.solvers.baselines.paddle import Paddle
from infoshot.solvers.baselines.prototype import Prototype
from infoshot.solvers.baselines.prototype_t import PrototypeT
from infoshot.solvers.baselines.pt_map import PtMap
from infoshot.solvers.baselines.soft_kmeans import SoftKMeans
from infoshot.solvers.method import Method
from infoshot.solvers.tim_adm import TimAdm
from infoshot.solvers.tim_auto import TimAuto
from infoshot.solvers.tim_gd import TimGd

_ALL = (
    Method(
        name="prototype",
        solver=Prototype(),
        transductive=False,
        summary="nearest class mean",
        cost="one product, Q K d",
    ),
    Method(
        name="shrunken-prototype",
        solver=Prototype(shrinkage=5.0, temperature=100.0),
        transductive=False,
        summary="nearest class mean, with the means shrunken towards their common mean",
        cost="one product, Q K d",
    ),
    Method(
        name="simpleshot",
        solver=Prototype(),
        preparation="centred-l2",
        transductive=False,
        inductive=False,  # new samples would need the mean of the base classes too
        assumes=("base-mean",),
        summary="nearest class mean on features centred by the mean of the base classes",
        cost="one product, Q K d",
    ),
    Method(
        name="matching",
        solver=Matching(),
        transductive=False,
        summary="vote of the labelled samples, weighted by their similarity",
        cost="one product, Q S d",
    ),
    Method(
        name="baseline",
        solver=Baseline(),
        transductive=False,
        summary="linear classifier fitted to the support",
        cost="100 steps of 2 K S d",
    ),
    Method(
        name="baseline++",
        solver=BaselinePlusPlus(),
        transductive=False,
        summary="cosine classifier fitted to the support",
        cost="100 steps of 2 K S d",
    ),
    Method(
        name="baseline-sgd",
        solver=BaselineSgd(),
        preparation="none",
        transductive=False,
        summary="linear layer fitted to the support by SGD from random weights",
        cost="100 passes of 2 K S d",
    ),
    Method(
        name="baseline++-sgd",
        solver=BaselinePlusPlusSgd(),
        transductive=False,
        summary="cosine classifier fitted to the support by SGD from random weights",
        cost="100 passes of 2 K S d",
    ),
    Method(
        name="neg-cosine",
        solver=BaselinePlusPlusSgd(learns_lengths=False, temperature=5.0),
        transductive=False,
        summary="cosine classifier of fixed scale, fitted by SGD: the head of Neg-cosine",
        cost="100 passes of 2 K S d",
    ),
    Method(
        name="distill",
        solver=LogisticRegression(),
        transductive=False,
        summary="logistic regression on the support: the head of Distill",
        cost="S S d, and about 60 steps of K S S",
    ),
    Method(
        name="metaopt-ridge",
        solver=MetaOpt(problem="ridge"),
        preparation="none",
        transductive=False,
        summary="ridge regression on the labels of the support: a head of MetaOptNet",
        cost="S S d, and S S S / 6",
    ),
    Method(
        name="metaopt-svm",
        solver=MetaOpt(problem="svm"),
        preparation="none",
        transductive=False,
        summary="multi-class support vector machine: the head of MetaOptNet",
        cost="S S d, and about 200 steps of K S S",
    ),
    Method(
        name="prototype+t",
        solver=PrototypeT(),
        summary="class means over the support and the most confident queries",
        cost="two products, Q K d, in 2 rounds",
    ),
    Method(
        name="matching+t",
        solver=MatchingT(),
        assumes=("balance",),
        summary="vote of the labelled samples and the most confident queries",
        cost="Q N d in each of 3 rounds",
    ),
    Method(
        name="ent-min",
        solver=TimGd(
            marginal_entropy_weight=0.0, cross_entropy_weight=1.0, conditional_entropy_weight=1.0
        ),
        summary="entropy minimization, without the marginal entropy of TIM",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="label-propagation",
        solver=LabelPropagation(),
        summary="labels spread over the nearest-neighbour graph",
        cost="N N d, and N N N / 3",
    ),
    Method(
        name="bd-cspn",
        solver=BdCspn(),
        assumes=("balance",),
        summary="prototypes rectified by shifted and pseudo-labelled queries",
        cost="three products, N K d",
    ),
    Method(
        name="laplacianshot",
        solver=LaplacianShot(),
        preparation="centred-l2",
        assumes=("base-mean", "balance"),
        summary="rectified prototypes, with the same label for neighbouring queries",
        cost="Q Q d, and 20 steps of 2 K Q",
    ),
    Method(
        name="pt-map",
        solver=PtMap(),
        preparation="power-l2",
        assumes=("class-counts",),
        summary="optimal transport of the queries to classes of known size",
        cost="20 steps of 2 K Q d",
    ),
    Method(
        name="soft-kmeans",
        solver=SoftKMeans(),
        assumes=("balance",),
        summary="class means over support and softly labelled queries",
        cost="two products, Q K d",
    ),
    Method(
        name="paddle",
        solver=Paddle(),
        assumes=("few-classes",),
        summary="soft k-means with estimated class proportions",
        cost="20 steps of 2 K Q d",
    ),
    Method(
        name="oslo",
        solver=Oslo(),
        preparation="centred-l2",
        assumes=("base-mean", "balance", "open-set"),
        summary="soft k-means that gives probable outliers less weight",
        cost="2 steps of 2 K Q d",
    ),
    Method(
        name="ostim",
        solver=Ostim(),
        preparation="centred-l2",
        inductive=False,
        assumes=("base-mean", "balance", "open-set"),
        summary="information maximization with an additional class for outliers",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="bavardage",
        solver=Bavardage(),
        preparation="centred-l2",
        assumes=("base-mean", "all-classes"),
        summary="variational Bayes for a mixture with unknown class proportions",
        cost="10 steps of 2 K Q d",
    ),
    Method(
        name="alpha-tim",
        solver=AlphaTim(),
        assumes=("all-classes",),
        summary="information maximization with Tsallis entropies, for imbalanced classes",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="alpha-am",
        solver=AlphaAm(),
        assumes=("all-classes",),
        summary="information maximization with Tsallis entropies over a graph that is learnt",
        cost="1000 steps of N N N / 3",
    ),
    Method(
        name="tim-gd",
        solver=TimGd(),
        assumes=("balance",),
        summary="information maximization by gradient descent",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="tim-adm",
        solver=TimAdm(),
        assumes=("balance",),
        summary="information maximization by closed-form updates",
        cost="150 steps of K N min(N, 2 d)",
    ),
    Method(
        name="tim-auto",
        solver=TimAuto(),
        preparation="whitened",
        summary="information maximization that estimates the class balance from the features",
        cost="Q min(Q, 8192) d, and 140 steps of K N min(N, 2 d)",
    ),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}
"""The methods by name.

Examples
--------
>>> from infoshot import METHODS
>>> METHODS["tim-adm"].assumes
('balance',)
"""


def method_by_name(name: str) -> Method:
    """Return the registered method of that name.

    Raises
    ------
    InvalidArgumentError
        If there is none; the message suggests the nearest name.

    Examples
    --------
    >>> method_by_name("tim-adm").solver.n_steps
    150
    """
    if name not in METHODS:
        raise InvalidArgumentError(unknown_name("method", name, METHODS))
    return METHODS[name]
