"""Methods other than TIM, one module each."""

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

__all__ = [
    "AlphaAm", "Baseline", "BaselinePlusPlus", "BaselinePlusPlusSgd", "BaselineSgd",
    "Bavardage", "BdCspn", "LabelPropagation", "LaplacianShot", "LogisticRegression",
    "Matching", "MatchingT", "MetaOpt", "Oslo", "Ostim", "Paddle", "Prototype", "PrototypeT",
    "PtMap", "SoftKMeans",
]  # fmt: skip
