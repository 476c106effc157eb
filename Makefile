# Each target is one line that a person could type. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
FAST := not slow and not learning and not chaos and not cluster

.DEFAULT_GOAL := help
.PHONY: help setup train watch live test test-all chaos check format format-check lint type smoke docs research bench bench-relative research-test docker clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

# The stamps say when the requirements were last installed: once, and again when a file changes.
$(VENV)/run.stamp: requirements.txt
	@echo "Making $(VENV) and installing what the program needs, once."
	@echo "PyTorch is the largest part: 0.2 GB without CUDA, 3 GB with it."
	@echo "This takes minutes; pip says below what it does."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --requirement requirements.txt
	@touch $@

$(VENV)/dev.stamp: pyproject.toml $(VENV)/run.stamp
	@echo "Installing what tests and checks need, once."
	$(BIN)/python -m pip install --disable-pip-version-check --editable ".[dev]"
	@touch $@

$(VENV)/live.stamp: pyproject.toml $(VENV)/run.stamp
	@echo "Installing what the live page needs, once."
	$(BIN)/python -m pip install --disable-pip-version-check --editable ".[live]"
	@touch $@

setup: $(VENV)/dev.stamp  ## make .venv and install everything, also what developers need

train: $(VENV)/run.stamp  ## train; flags in ARGS, e.g. make train ARGS="--env=CartPole-v1"
	$(BIN)/python main.py $(ARGS)

# The dummy driver makes a film where there is a display as well.
watch: $(VENV)/run.stamp  ## record a video of a bundled agent, e.g. make watch GAME=breakout; flags in ARGS as above
	SDL_VIDEODRIVER=dummy $(BIN)/python main.py --op_mode=test --load_model_url=models/$(or $(GAME),pong) --render=True --test_episode_count=1 $(ARGS)

live: $(VENV)/live.stamp  ## a page in the browser that shows the runs in results/; options in ARGS
	$(BIN)/python -m ritornello.live $(ARGS)

test: $(VENV)/dev.stamp  ## the fast tests, in parallel and in random order
	$(BIN)/python -m pytest --numprocesses=auto --dist=worksteal -m "$(FAST)" $(ARGS)

test-all: $(VENV)/dev.stamp  ## every test, also those that train, kill and take long
	$(BIN)/python -m pytest --numprocesses=auto --dist=worksteal $(ARGS)

chaos: $(VENV)/dev.stamp  ## inject faults into real trainings for an hour; other lengths and seeds in ARGS
	$(BIN)/python -m tests.chaos --minutes=60 --seed=1 $(ARGS)

check: format-check lint type test  ## what .ci/run checks

format: $(VENV)/dev.stamp  ## format the code and sort imports
	$(BIN)/ruff check --quiet --select I --fix . && $(BIN)/ruff format .

format-check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .

lint: $(VENV)/dev.stamp  ## ruff
	$(BIN)/ruff check .

type: $(VENV)/dev.stamp  ## mypy
	$(BIN)/mypy

smoke: $(VENV)/run.stamp  ## four tiny runs and their comparison
	$(BIN)/python multi_train.py --sequence=smoke

docs: $(VENV)/run.stamp  ## regenerate docs/flags.md, health.md and metrics.md, and the tables of results.md
	$(BIN)/python docs/generate.py && $(BIN)/python -m research.tables

research: $(VENV)/run.stamp  ## work on the queue of experiments, e.g. make research MINUTES=150
	$(BIN)/python -m research.queue run $(if $(MINUTES),--minutes=$(MINUTES)) $(ARGS)

bench: $(VENV)/run.stamp  ## measure the speed of whole runs and of their parts
	$(BIN)/python benchmarks/bench_end_to_end.py $(ARGS)

bench-relative: $(VENV)/run.stamp  ## how many times as fast a run is as one process; fails far below the record
	$(BIN)/python benchmarks/bench_relative.py $(ARGS)

research-test: $(VENV)/dev.stamp  ## the tests of research/
	$(BIN)/python -m pytest --numprocesses=auto --dist=worksteal research/tests $(ARGS)

docker:  ## build the image
	docker build --tag ritornello .

clean:  ## remove caches; never results/
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
