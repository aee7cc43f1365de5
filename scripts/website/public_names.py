"""The public names of the package: those of ``infoshot`` and of the packages that users import."""

from functools import cache
from importlib import import_module
from types import ModuleType

import infoshot

# Pages of the reference: title, and modules whose public names it has.
PAGES = {
    "labelling": ("Label images", ("labelling",)),
    "reviewing": ("Review labels", ("reviewing.api",)),
    "estimator": ("Estimator for scikit-learn", ("estimator",)),
    "benchmark": ("Evaluate methods", ("benchmark",)),
    "reproduction": ("Reproduce the paper", ("reproduction",)),
    "solvers": ("Methods", ("solvers",)),
    "tasks": ("Tasks", ("tasks",)),
    "metrics": ("Metrics", ("metrics",)),
    "features": ("Features", ("features", "features.api")),
    "encoders": ("Encoders", ("backbones",)),
    "images": ("Image data sets", ("images", "images.inspection")),
    "training": ("Training", ("training",)),
    "integrations": ("Other programs", ("integrations",)),
    "shards": ("Shards", ("shards", "distributed.ray_cluster")),
    "testing": ("Testing a method", ("testing",)),
    "types": ("Types that packages exchange", ("core.types", "version")),
    "errors": ("Exceptions", ("core.errors",)),
}


@cache
def public_names() -> dict[str, tuple[str, ...]]:
    """Return the identifiers of all public names by page, each once.

    A name that ``infoshot`` has is called ``infoshot.name``, wherever it is defined.
    """
    found: dict[str, tuple[str, ...]] = {}
    for page, (_, modules) in PAGES.items():
        listed = {path for names in found.values() for path in names}
        names = (path for module in modules for path in _names_of(f"infoshot.{module}"))
        found[page] = tuple(dict.fromkeys(path for path in names if path not in listed))
    return found


def _names_of(name: str) -> list[str]:
    """Return the public names of a module; those of ``infoshot`` where it has no list."""
    module = import_module(name)
    names = getattr(module, "__all__", None) or _own_names(module)
    return [f"infoshot.{n}" if n in infoshot.__all__ else f"{name}.{n}" for n in names]


def _own_names(module: ModuleType) -> list[str]:
    """Return what a module without a list defines; of a private module, what ``infoshot`` has."""
    own = [
        name
        for name, value in vars(module).items()
        if name == "__version__"
        or (not name.startswith("_") and getattr(value, "__module__", "") == module.__name__)
    ]
    is_public = module.__name__ == "infoshot.metrics"
    return [name for name in own if is_public or name in infoshot.__all__]


@cache
def identifiers() -> dict[str, str]:
    """Return the identifier of every public name, by the name."""
    return {path.rpartition(".")[2]: path for names in public_names().values() for path in names}


def find_object(path: str) -> object:
    """Return what an identifier names."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
