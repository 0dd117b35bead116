.PHONY: setup demo test test-finetune test-safety test-examples slow attack check format docs dist
PYTHON ?= python3
BIN := .venv/bin

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,docs]' --constraint constraints.txt
	@touch $@

demo: setup  ## train e-COP on PointCircle with 5 seeds; table, curves and animation
	rm -rf runs/demo
	$(BIN)/ecop train PointCircle --seeds 5 --out runs/demo
	$(BIN)/ecop evaluate runs/demo --episodes 100
	$(BIN)/ecop plot runs/demo
	$(BIN)/ecop render runs/demo

test: setup  ## what CI runs: formatting, lint, types, fast tests, a third of the slow ones
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pytest -n 2 --slow-share=today

slow: setup  ## all slow tests
	$(BIN)/pytest -n 2 -m slow

attack: setup  ## kills, damaged files, exploits, bad environments, full disks: minutes
	$(BIN)/pytest tests/attack --attack

# Torch, TRL and diffusers in an environment of their own: the core must not need them.
FINETUNE := .venv-finetune/bin

.venv-finetune/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-finetune
	$(FINETUNE)/pip install --quiet --disable-pip-version-check --editable '.[dev,trl,diffusers]' scikit-learn --constraint constraints.txt
	@touch $@

test-finetune: .venv-finetune/ready  ## types and tests of ecop.finetune: about 2 CPU minutes
	$(FINETUNE)/pyright -p .ci/pyright-finetune.json
	OMP_NUM_THREADS=1 $(FINETUNE)/pytest tests/finetune tests/exact/test_language.py

# Safety-Gymnasium 1.0.0 and bullet-safety-gym need Gymnasium 0.28 and an older Python.
OLDER ?= python3.10

.venv-safety/ready:
	$(OLDER) -m venv .venv-safety
	.venv-safety/bin/pip install --quiet --disable-pip-version-check safety-gymnasium==1.0.0 bullet-safety-gym==1.4.0
	@touch $@

test-safety: setup .venv-safety/ready  ## their environments, in workers of that Python
	$(BIN)/pytest -m slow tests/test_other_python.py

# Simulators of others and Optuna, which bring much along.
EXAMPLES := .venv-examples/bin

.venv-examples/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-examples
	$(EXAMPLES)/pip install --quiet --disable-pip-version-check --editable '.[dev,examples]' --constraint constraints.txt
	@touch $@

test-examples: .venv-examples/ready  ## every example and notebook, two iterations each
	$(EXAMPLES)/pytest tests/test_examples.py

docs: setup  ## the site, in build/site; python -m http.server -d build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: setup  ## sdist and wheel in dist/, installed and tested in fresh environments
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/pytest tests/test_wheel.py

check: test

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
