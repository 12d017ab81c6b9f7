# Each target installs what it needs, so no other command is needed on a fresh machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# pip's index decides which build this is: usually CUDA's; an index of CPU builds saves gigabytes. TORCH can also be another
# version or a file.
TORCH ?= torch==2.13.0
DEMO ?= runs/demo
SEEDS ?= 3
# `make ...` installs the versions pinned in requirements/ and checks their sha256. `make NEWEST=yes ...` installs the newest
# versions, and `make LOWEST=yes ...` the lowest that pyproject.toml allows. TORCH always determines the version of torch.
NEWEST ?=
LOWEST ?=

.PHONY: install demo notebook pipeline-demo test test-all record rejudge evidence expected oracle attack gpu lint audit lock tables docs clean

# Write .pyc files even if PYTHONDONTWRITEBYTECODE is set, because importing torch without them takes three times as long.
# Let pip compile nothing, because compiling everything takes longer than downloading it.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/pip install --quiet --no-compile
# BASE is what the demo needs, and DEV what developers need in addition.
BASE := $(VENV)/locked-base
DEV := $(VENV)/locked-dev
ifneq ($(NEWEST)$(LOWEST),)
BASE := $(VENV)/$(if $(LOWEST),lowest,newest)
DEV := $(BASE)
endif
install: $(DEV)

$(VENV)/locked-base: requirements/base.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	rm -f $(VENV)/newest $(VENV)/lowest
	$(PIP) --require-hashes --no-deps --requirement $<
	$(PIP) "$(TORCH)"
	$(PIP) --no-build-isolation --no-deps --editable .
	touch $@

$(VENV)/locked-dev: requirements/dev.txt requirements/spacy.txt $(VENV)/locked-base
	$(PIP) --require-hashes --no-deps --requirement requirements/spacy.txt --requirement requirements/dev.txt
	touch $@

$(VENV)/newest: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	rm -f $(VENV)/locked-* $(VENV)/lowest
	$(PIP) --upgrade --upgrade-strategy eager "$(TORCH)" --editable ".[dev]"
	touch $@

$(VENV)/lowest: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	rm -f $(VENV)/locked-* $(VENV)/newest
	$(PIP) uv
	echo 'torch; python_version < "3"' | $(BIN)/uv pip compile --quiet --resolution lowest-direct --python $(BIN)/python \
		--extra dev --overrides - --output-file $(VENV)/lowest.txt pyproject.toml
	$(PIP) --no-deps --requirement $(VENV)/lowest.txt
	$(PIP) "$(TORCH)"
	$(PIP) --no-build-isolation --no-deps --editable .
	touch $@

# The annotated maps come from data/store, so this needs no network.
$(VENV)/maps: data/patterns.dvc $(DEV)
	$(BIN)/dvc pull --quiet --remote maps $<
	touch $@

# Claims of every kind, except claims that need padded maps or a parser.
DEMO_CLAIMS := A2 A3 A4 A5 B C1 C2 C3 C4 D E1 E5 G
demo: $(BASE)
	$(BIN)/bertsecrets corpus $(DEMO)/glue
	$(BIN)/bertsecrets run --model minilm --task rte $(DEMO_CLAIMS:%=--claim %) \
		--glue $(DEMO)/glue --frames $(DEMO)/glue/made-up-frames.jsonl --allow-unofficial-data --offline \
		--seeds $(SEEDS) --store $(DEMO) \
		--json $(DEMO)/verdicts.json --html $(DEMO)/report.html --markdown $(DEMO)/summary.md \
		|| [ $$? -eq 1 ]  # some claims deviate on this corpus
	@echo
	@echo "Go on: source $(BIN)/activate"
	@echo "       bertsecrets explain G1"

# Run the example notebook again, on the demo's corpus and store, and save its output.
notebook: $(DEV)
	$(BIN)/bertsecrets corpus $(DEMO)/glue_data
	cp docs/example.ipynb $(DEMO)
	cd $(DEMO) && BERTSECRETS_STORE=. TQDM_DISABLE=1 "$(abspath $(BIN))/jupyter-execute" --inplace \
		--NotebookClient.record_timing=False example.ipynb
	cp $(DEMO)/example.ipynb docs

# The demo as a DVC pipeline (docs/dvc.md), which leaves its settings in params.yaml.
pipeline-demo: $(DEV)
	$(BIN)/bertsecrets corpus runs/corpus
	PATH="$(abspath $(BIN)):$$PATH" dvc exp run -S 'pipeline=$${sets.demo}'

# 1.5 workers per core, because tests often wait for processes, for disks and for each other.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(max(1, 3 * os.cpu_count() // 2))')
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p no:benchmark -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
	--durations=10

# The fast tests, except those of the instruments: run them after every change.
test: $(DEV) $(VENV)/maps
	$(PYTEST) -m "not slow"

# Every test. CI runs this on every push.
test-all: $(DEV) $(VENV)/maps evidence
	$(PYTEST)

# Put the measurements that `run --save` saved in data/evidence/$(SET) on record (docs/dvc.md).
SET ?=
record: $(DEV)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python .ci/record "$(SET)"
	$(BIN)/python docs/tables.py

# Judge the measurements on record again after a change of claims or of the judge. Then review the differences.
rejudge: $(DEV) evidence
	PATH="$(abspath $(BIN)):$$PATH" dvc repro --force data/evidence/dvc.yaml
	$(BIN)/python docs/tables.py

# Fetch the measurements on record, which the repository itself contains.
evidence: $(DEV)
	$(BIN)/dvc pull --remote evidence --recursive data/evidence

# Renew the expected outputs of the example run after a change of the report. Then review the difference.
expected: $(DEV)
	RENEW=yes $(BIN)/python -m pytest -p no:benchmark -q tests/report/test_expected.py

# Renew the file of what is reproduced if the model is as published, after a change of claims or of the judge. If killed, the
# target resumes where it stopped.
JOBS ?= 2
oracle: $(DEV) $(VENV)/maps
	OMP_NUM_THREADS=1 $(BIN)/python -m instruments calibrate --as-published --jobs $(JOBS) --cells runs/oracle.jsonl \
		--data expected/as-published.json
	$(BIN)/python docs/tables.py

# All attacks of docs/faults.md. `make test` runs a few of them.
attack: $(DEV) $(VENV)/maps
	OMP_NUM_THREADS=1 BERTSECRETS_ATTACK=long $(BIN)/python -m pytest -p no:benchmark -n auto tests/attack tests/instruments/test_corrupted_files.py

# The tests and speed benchmarks that need a GPU (docs/gpu.md). No environment is created, because there may be no network.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
gpu:
	$(if $(GLUE),,$(error give a folder in GLUE's own layout: make gpu GLUE=DIR))
	@$(GPU_PYTHON) -c "import sys, torch; torch.cuda.is_available() or sys.exit('make gpu: torch finds no GPU here')"
	$(GPU_PYTHON) -m pytest -m gpu tests
	@# Benchmarks run in a separate process, because the tests' type checks slow down everything in the tests' process.
	$(GPU_PYTHON) -m pytest -m gpu benchmarks/speed --glue "$(GLUE)" --offline --benchmark-json speed-gpu.json

# The strictness of zizmor. CI sets pedantic.
PERSONA ?= regular
lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/deptry bertsecrets
	PATH="$(abspath $(BIN)):$$PATH" actionlint  # which runs shellcheck on scripts
	$(BIN)/zizmor --offline --quiet --persona $(PERSONA) .github
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions .github/actions/*/action.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	PATH="$(abspath $(BIN)):$$PATH" shellcheck .ci/run
	$(BIN)/hadolint container/Containerfile

# Look for insecure code, and for known vulnerabilities in pinned packages.
audit: $(DEV)
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive bertsecrets instruments
	$(BIN)/python .ci/audit $(filter-out %/torch-cpu.txt,$(wildcard requirements/*.txt))

# TORCH_CPU_INDEX names an index of PyTorch's CPU builds; without it, torch-cpu.txt stays as it is.
TORCH_CPU_INDEX ?=
lock: $(DEV)
	PATH="$(abspath $(BIN)):$$PATH" .ci/lock "$(TORCH)" $(TORCH_CPU_INDEX)

# Renew the tables in docs/ that are generated from code and evidence.
tables: $(DEV)
	$(BIN)/python docs/tables.py

docs: tables
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) $(DEMO) site
