#!/usr/bin/env bash
# The one gate: the same by hand, in the hook and in CI. Stops at the first failure and says how to repeat it.
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
stage lint-imports --no-cache --verbose
stage mypy
stage make test
