"""The arguments of a run, as run.json records them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infoshot.core.checks import order_shares
from infoshot.core.errors import InvalidArgumentError
from infoshot.solvers import METHODS, Method, resolve_method


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of a run. Two runs with equal requests are the same run."""

    examples: str | None
    photos: str
    backbone: str
    method: str
    settings: Mapping[str, Any]
    threshold: float
    reject_outliers: bool
    prior: Mapping[str, float] | None
    coverage: float | None = None
    target: float | None = None
    classes: Sequence[str] | None = None
    text_weight: int | None = None

    @property
    def promises(self) -> bool:
        """Whether prediction sets or a target are asked for."""
        return self.coverage is not None or self.target is not None

    def same_images(self, other: "Request") -> bool:
        """Whether another request is about the same examples and images."""
        return (self.examples, self.photos) == (other.examples, other.photos)

    def join_classes(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Return the classes of the examples and those that are given by name, sorted."""
        return tuple(sorted({*labels, *(self.classes or ())}))

    def choose_method(self, classes: Sequence[str]) -> Method:
        """Return the method with its settings for these classes.

        Raises
        ------
        InvalidArgumentError
            If the method cannot classify new images, or the prior does not fit.
        """
        method = resolve_method(self.method).with_settings(self.settings)
        if not method.inductive:
            able = [name for name, other in METHODS.items() if other.inductive]
            raise InvalidArgumentError(
                f"method must be able to classify new images, but '{self.method}' cannot; use one "
                f"of: {', '.join(able)}."
            )
        if self.prior is None:
            return method
        if "class_prior" not in method.solver.settings():
            raise InvalidArgumentError(f"prior must not be given for the method '{self.method}'.")
        shares = order_shares(self.prior, classes)
        return method.with_settings({"class_prior": [share / sum(shares) for share in shares]})
