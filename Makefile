PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check docs perf slow clean

demo: .venv/.run  ## run the demonstration on data in the package, two to three minutes
	$(BIN)/infoshot demo

test: .venv/.dev  ## run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: .venv/.dev  ## run all checks that a change must pass; CI runs the same
	scripts/check.sh

docs: .venv/.dev  ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

perf: .venv/.perf  ## measure speed as ratios; OUT=results/perf.json saves them
	$(BIN)/python -m pytest perf -o addopts="" --benchmark-disable-gc --benchmark-columns=min,mean $(if $(OUT),--out $(OUT))
	$(BIN)/python -m perf.whole_evaluation

slow: docs  ## run the tests that take minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis infoshot-demo

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/.run: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing InfoShot into .venv (once) ..."
	$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.run
	@echo "Installing the test dependencies into .venv (once) ..."
	$(PIP) -e '.[dev]'
	@touch $@

.venv/.perf: .venv/.dev
	$(PIP) --no-deps easyfsl==1.5.0
	@touch $@
