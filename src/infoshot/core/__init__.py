"""Types, errors, checks and file helpers that every other package uses."""
