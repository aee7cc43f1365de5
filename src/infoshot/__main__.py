"""The command ``infoshot``, also as ``python -m infoshot`` and ``torchrun -m infoshot``."""

from infoshot.core import interrupts


def main() -> None:
    """Run the command; an interrupt is one line, also while modules are imported."""
    interrupts.end_at_once()
    from infoshot.cli.app import main as run_command

    try:
        run_command()
    finally:
        interrupts.end_silently()


if __name__ == "__main__":
    main()
