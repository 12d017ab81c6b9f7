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

.PHONY: demo test lint docs clean

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet "$(TORCH)"
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

# The annotated maps come from data/store, so this needs no network.
$(VENV)/maps: data/patterns.dvc $(VENV)/installed
	$(BIN)/dvc pull --quiet --remote maps $<
	touch $@

demo: $(VENV)/installed $(VENV)/maps
	$(BIN)/bertsecrets corpus $(DEMO)/glue
	$(BIN)/bertsecrets report --model minilm --task rte --glue $(DEMO)/glue --allow-unofficial-data --offline \
		--store $(DEMO) --json $(DEMO)/verdicts.json --html $(DEMO)/report.html

test: $(VENV)/installed $(VENV)/maps
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p no:benchmark -n auto --dist loadfile

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) $(DEMO) site
