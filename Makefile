# make setup   .venv with the package and the CPU test bed (real SGLang, no GPU needed)
# make demo    a whole sweep on this machine
# make test    every test, real SGLang included
# make lint    ruff and mypy

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: setup demo test lint schemas clean

setup: $(STAMP)

# The pinned list goes in without its dependencies: SGLang's own list wants CUDA builds. torch comes from
# it too, so the second step finds a torch that is already there.
$(STAMP): pyproject.toml sweeper/testbed/requirements.txt requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-deps -r sweeper/testbed/requirements.txt
	$(BIN)/pip install --quiet --no-deps -r requirements-dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $(STAMP)

demo: setup
	$(BIN)/sweeper testbed build
	$(BIN)/sweeper run search_spaces/cpu_tiny.yaml

test: setup
	$(BIN)/sweeper testbed build
	$(BIN)/pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

schemas: setup
	$(BIN)/python -m reports.schemas docs/schemas

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
