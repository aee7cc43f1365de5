#!/usr/bin/env bash
# All checks, also in CI: format, lint, spelling, import direction, types, the documentation site, tests (which
# include the Triton kernels in Triton's interpreter). Stops at the first failure and prints the command that failed.
set -u
cd "$(dirname "$0")/.." || exit 1
export PATH="$PWD/.venv/bin:$PATH"

stage() {
  local start=$SECONDS
  if ! "$@"; then
    printf '\nFAILED: %s\n' "$*"
    exit 1
  fi
  printf -- '--- %-40s %4d s\n' "$*" $((SECONDS - start))
}

stage ruff format --check --quiet
stage ruff check --quiet
stage codespell
stage python scripts/check_prose.py
stage lint-imports --no-cache --verbose
stage mypy
stage make docs
stage make test
