"""How frequent classes are, as ``--prior`` says it."""

import json
from pathlib import Path

from infoshot.core.errors import DataError, InvalidArgumentError


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
