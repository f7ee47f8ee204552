# Needs make and Python 3.11 or newer; the first target that needs anything else installs it into .venv.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell \
	$(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))) python3)
JOBS ?= 2
RUN := runs/quickstart
BIN := .venv/bin
STAMP := .venv/.installed
PYTEST = $(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile --quiet
.DEFAULT_GOAL := help
.PHONY: help install quickstart notebooks docs test lab-test test-all test-long test-processors lint check format lock clean

help:  ## print this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

install: $(STAMP)  ## install the pinned dependencies and this project into .venv
	@:

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo \
	  "error: '$(PYTHON)' is not Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || { echo "creating .venv with $$($(PYTHON) --version)" >&2; $(PYTHON) -m venv .venv; }
	@echo "installing $$(grep -c == requirements.lock) pinned packages into .venv (about 1 GB, once)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

quickstart: install  ## train on the built-in corpus, score, translate, draw attention, write the explorer (5 minutes)
	@echo "[1/5] training configs/quickstart.py (resumes $(RUN) if it exists)" >&2
	@$(BIN)/python -m train --config=configs/quickstart.py --workdir=$(RUN)
	@echo "[2/5] scoring the held-out test split" >&2
	@$(BIN)/python -m infer --workdir=$(RUN) --split=test
	@echo "[3/5] translating its first five sentences" >&2
	@$(BIN)/python -c 'from vaswani.data.grammar.sentences import pair; [print(pair("test", i).english) for i in range(5)]' > $(RUN)/sample.en
	@$(BIN)/python -m infer.translate --workdir=$(RUN) < $(RUN)/sample.en > $(RUN)/sample.de
	@paste -d '\n' $(RUN)/sample.en $(RUN)/sample.de | sed 'n; s/^/    /'
	@echo "[4/5] drawing what each head attends to in the first one" >&2
	@for kind in png html; do $(BIN)/python -m infer.attention_maps --workdir=$(RUN) \
	  --source="$$(head -n 1 $(RUN)/sample.en)" --output=$(RUN)/attention.$$kind || exit; done
	@echo "[5/5] writing the page in which the model runs" >&2
	@$(BIN)/python -m infer.explorer --workdir=$(RUN) --source="$$(head -n 1 $(RUN)/sample.en)" --output=$(RUN)/explorer.html
	@printf '%s\n' '' \
	  'Done. In $(RUN):' \
	  '  config.json run.json   what was trained, and with which versions' \
	  '  checkpoints/           parameters        metrics.jsonl tensorboard/   learning curves' \
	  '  sample.en sample.de    the sentences above' \
	  '  attention.png          the heat maps; attention.html lets you choose layer and head' \
	  '  explorer.html          the model itself: open it in a browser, and type' \
	  'Next:' \
	  '  echo "$$(head -n 1 $(RUN)/sample.en)" | $(BIN)/python -m infer.translate --workdir=$(RUN) --nbest=4' \
	  '  $(BIN)/python -m train --config=configs/quickstart.py --workdir=runs/one_head \' \
	  '    --config.model.h=1 --config.model.d_k=128 --config.model.d_v=128' \
	  '  $(BIN)/python -m train --config=configs/quickstart.py --workdir=runs/mine --config.data.train="text:PREFIX.{en,de}" ...   (README: your own text)'

notebooks: install  ## execute the notebooks, of which the third reads runs/quickstart; needs extra `notebooks`
	@$(BIN)/python -m notebooks.build

docs: export NO_MKDOCS_2_WARNING = 1
docs: install  ## build the documentation site, build/site/index.html; needs extra `docs`
	@$(BIN)/python -c 'import mkdocs' 2>/dev/null || { echo "error: first $(BIN)/pip install -e '.[docs]'" >&2; exit 2; }
	@$(BIN)/python -m mkdocs build --strict --quiet && echo "build/site/index.html" >&2

lint: install  ## ruff and mypy
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "error: unformatted files; 'make format' fixes them" >&2; exit 1; }
	@$(BIN)/mypy

format: install  ## format the sources with ruff
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format .

test: install  ## run the tests, with shapes and types checked at run time (5 to 10 minutes on 2 cores)
	@$(PYTEST)

lab-test: install  ## run the tests of our own studies, probes and benchmarks
	@$(PYTEST) lab/tests

test-all: install  ## run the slow tests as well, and the lab's (half an hour to an hour)
	@$(PYTEST) -m "not long" tests lab/tests

test-long: install  ## run the tests that take a minute or more each: TPU compilation, faults, damaged files, a browser
	@$(PYTEST) -m long tests lab/tests

check: lint test-all  ## lint, then run all tests but the long ones: for a change to the code

test-processors: install  ## run the numerical tests as other processors would round (tests/processors.py)
	@$(BIN)/python -m tests.processors

lock: install  ## rewrite requirements.lock from pyproject.toml
	@$(BIN)/python -m venv .cache/lock && .cache/lock/bin/python -m pip install --quiet uv
	@.cache/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --upgrade --no-annotate \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml

clean:  ## remove .venv and all caches; runs/ stays
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
