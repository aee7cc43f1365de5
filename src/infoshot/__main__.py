"""``python -m infoshot``, also for ``torchrun -m infoshot``."""

from infoshot.cli.app import main

if __name__ == "__main__":
    main()
