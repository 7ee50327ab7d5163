# make setup   .venv with the package and the CPU test bed (real SGLang, no GPU needed)
# make demo    a whole sweep on this machine; again: continues it, or with NAME=other a new study
# make test    every test, real SGLang included
# make test-all  also the slow ones: half an hour more
# make lint    ruff and mypy
# make postgresql  installs the server that some tests start on a port of their own (root on Debian or Ubuntu)
# make chromium    installs the browser that opens the HTML report in some tests (likewise)

# SGLang 0.5.23 needs Python 3.11; the first interpreter that is new enough.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
UV     := 0.13.9
UVPIP   = $(BIN)/uv pip install --quiet --python $(BIN)/python
CPUTORCH = $(BIN)/pip install --quiet --no-compile --no-deps $$(grep '^torch==' sweeper/testbed/requirements.txt)
# The index that this machine's pip is set up for, if any.
ifndef UV_DEFAULT_INDEX
export UV_DEFAULT_INDEX := $(or $(PIP_INDEX_URL),$(shell $(PYTHON) -m pip config get global.index-url 2>/dev/null),https://pypi.org/simple)
endif
# Modules are compiled when first imported, most never are: every start of a server imports thousands.
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup demo test test-all lint postgresql chromium schemas clean

setup: $(STAMP)

# The pinned list goes in without its dependencies: SGLang's own list wants CUDA builds, and PyPI's torch is one, which
# cannot be imported without them. So torch comes first, by pip, as the CPU build that this machine's pip knows of, or
# else PyTorch's own index; all the rest by uv, in half a minute instead of four.
$(STAMP): pyproject.toml sweeper/testbed/requirements.txt requirements-dev.txt
	@test -n "$(PYTHON)" || { echo "SGLang 0.5.23 needs Python >= 3.11; install one, or: make PYTHON=/path/to/python3.12 setup"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet uv==$(UV)
	$(CPUTORCH)+cpu 2>/dev/null || $(CPUTORCH) --index-url https://download.pytorch.org/whl/cpu
	$(UVPIP) --no-deps -r sweeper/testbed/requirements.txt -r requirements-dev.txt
	$(UVPIP) --no-deps --no-build-isolation -e .
	touch $(STAMP)

demo: setup
	$(BIN)/sweeper testbed build
	$(BIN)/sweeper run search_spaces/cpu_tiny.yaml $(if $(NAME),--name $(NAME))

# One process starts the real servers, one has the rest; a third made two cores so busy that Ray gave up on its nodes.
test: setup postgresql chromium
	$(BIN)/sweeper testbed build
	$(BIN)/pytest -m "not slow" -n 2 --dist loadgroup

test-all: test
	$(BIN)/pytest -m slow

# Its programs alone: no cluster is made and no service started. Where it cannot be had, its tests are skipped.
postgresql:
	@if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends postgresql-common && \
		echo "create_main_cluster = false" >> /etc/postgresql-common/createcluster.conf && \
		apt-get install -qq -y --no-install-recommends postgresql || echo "PostgreSQL: not installed, its tests are skipped"; \
	else echo "PostgreSQL: not installed, its tests are skipped"; fi

chromium:
	@if command -v chromium >/dev/null || command -v google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium || \
		echo "Chromium: not installed, its tests are skipped"; \
	else echo "Chromium: not installed, its tests are skipped"; fi

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

schemas: setup
	$(BIN)/python -m reports.schemas docs/schemas

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
