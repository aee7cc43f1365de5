"""The methods, and ``solve``, which runs them."""

from infoshot.solvers.alpha_tim import AlphaTim
from infoshot.solvers.baselines.baseline import Baseline
from infoshot.solvers.baselines.baseline_plus_plus import BaselinePlusPlus
from infoshot.solvers.baselines.bd_cspn import BdCspn
from infoshot.solvers.baselines.label_propagation import LabelPropagation
from infoshot.solvers.baselines.laplacianshot import LaplacianShot
from infoshot.solvers.baselines.matching import Matching
from infoshot.solvers.baselines.oslo import Oslo
from infoshot.solvers.baselines.ostim import Ostim
from infoshot.solvers.baselines.paddle import Paddle
from infoshot.solvers.baselines.prototype import Prototype
from infoshot.solvers.baselines.pt_map import PtMap
from infoshot.solvers.baselines.soft_kmeans import SoftKMeans
from infoshot.solvers.loop import solve
from infoshot.solvers.method import ASSUMPTIONS, Method, Preparation
from infoshot.solvers.registry import METHODS, method_by_name
from infoshot.solvers.resolve import (
    ENTRY_POINTS,
    method_facts,
    method_from_facts,
    resolve_method,
    stored_method,
)
from infoshot.solvers.retry import solve_with_retry
from infoshot.solvers.sizes import tasks_per_chunk
from infoshot.solvers.solver import Solver, State
from infoshot.solvers.tim_adm import TimAdm
from infoshot.solvers.tim_auto import TimAuto
from infoshot.solvers.tim_gd import TimGd
from infoshot.solvers.trace import StepEvent, StepHook

__all__ = [
    "ASSUMPTIONS", "ENTRY_POINTS", "METHODS", "AlphaTim", "Baseline", "BaselinePlusPlus", "BdCspn",
    "LabelPropagation", "LaplacianShot", "Matching", "Method", "Oslo", "Ostim", "Paddle",
    "Preparation", "Prototype", "PtMap", "SoftKMeans", "Solver", "State", "StepEvent", "StepHook",
    "TimAdm", "TimAuto", "TimGd", "method_by_name", "method_facts", "method_from_facts",
    "resolve_method", "solve", "solve_with_retry", "stored_method", "tasks_per_chunk",
]  # fmt: skip
