"""How frequent classes are, as ``--prior`` says it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from infoshot.errors import DataError, InvalidArgumentError


def class_shares(given: str) -> dict[str, float]:
    """Shares of the classes, from the command line or from a JSON file."""
    wrong = f"--prior must look like cat=0.7,dog=0.3, or name a JSON file of that; got '{given}'."
    try:
        if Path(given).is_file():
            pairs = dict(json.loads(Path(given).read_text(encoding="utf-8")))
        elif given.endswith(".json"):
            raise DataError(f"{given}: there is no such file.")
        else:
            pairs = dict(pair.rsplit("=", 1) for pair in given.split(","))
        shares = {str(name).strip(): float(share) for name, share in pairs.items()}
    except OSError as error:
        raise DataError(f"{given}: cannot be read ({error.strerror}).") from error
    except (ValueError, TypeError) as error:
        if Path(given).is_file():
            raise DataError(f'{given}: must be JSON like {{"cat": 0.7, "dog": 0.3}}.') from error
        raise InvalidArgumentError(wrong) from error
    if not all(0 < share < float("inf") for share in shares.values()):
        raise InvalidArgumentError("--prior must give every class a share above 0.")
    return shares


def in_class_order(shares: Mapping[str, float], classes: Sequence[str]) -> list[float]:
    """Shares in the order of the classes, all of which must be named."""
    missing = [name for name in classes if name not in shares]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        names = ", ".join(missing[:5]) + more
        raise InvalidArgumentError(f"--prior must name every class once; missing: {names}.")
    for name in shares:
        if name not in classes:
            raise InvalidArgumentError(f"--prior: there is no class '{name}'.")
    return [shares[name] for name in classes]
