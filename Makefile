# Every command of this project, for people and for CI alike. `make help` lists them; nothing here is done elsewhere too.
#
# Owns: the virtual environment, the wheels that go into images, and the order in which checks run. What a command does
# in detail stands in the program that it calls.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.installed
# The machine's own Python: only makes the virtual environment and runs the cluster command, which needs nothing else.
HOST_PYTHON ?= $(shell for python in python3.11 python3 python3.13 python3.12; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
LOCALCLUSTER := PYTHONPATH=tests/cluster $(HOST_PYTHON) -m localcluster
PACKAGES := crds/modelservice_api operator/modelservice_operator sidecar/modelservice_sidecar cli/modelservice_cli
IMAGE_PARTS := operator sidecar tvm fastapi-digits triton-risk
SAY := @printf '==> %s\n'

.PHONY: help
help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)$$/\1\t\2/p' Makefile | sort | while IFS=$$'\t' read -r name what; do \
		printf '  %-14s %s\n' "$$name" "$$what"; done

# --- working environment ---

.PHONY: venv
venv: $(READY) ## make .venv with everything that development needs, at the locked versions

$(READY): requirements/bootstrap.txt requirements/dev.txt pyproject.toml
	@test -n "$(HOST_PYTHON)" || { echo "Python 3.11 or newer is needed: apt-get install python3 python3-venv" >&2; exit 1; }
	@if ! $(HOST_PYTHON) -c 'import ensurepip' 2>/dev/null; then \
		[ "$$(id -u)" = 0 ] || { echo "Python's venv is missing: as root, apt-get install python3-venv" >&2; exit 1; }; \
		echo "==> installing Debian's python3-venv: without it no virtual environment can be made"; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends python3-venv; fi
	@test -x $(PYTHON) || { echo "==> making $(VENV) with $(HOST_PYTHON): nothing is installed into the machine's own Python"; \
		$(HOST_PYTHON) -m venv $(VENV); }
	@echo "==> installing uv into $(VENV): it installs the other packages in seconds instead of minutes"
	@$(PYTHON) -m pip install -q --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@echo "==> installing the locked packages of requirements/dev.txt into $(VENV): tests, linters, and what the product needs"
	@$(VENV)/bin/uv pip install -q --python $(PYTHON) --require-hashes -r requirements/dev.txt
	@echo "==> installing this project into $(VENV), editable"
	@$(VENV)/bin/uv pip install -q --python $(PYTHON) --no-deps --no-build-isolation --offline -e .
	@touch $@

LOCK = $(VENV)/bin/uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --python-platform x86_64-manylinux_2_36

.PHONY: lock
lock: $(READY) ## resolve all requirements again within what pyproject.toml allows; UPGRADE=1 takes newer versions
	$(LOCK) $(if $(UPGRADE),--upgrade) --extra dev pyproject.toml -o requirements/dev.txt >/dev/null
	$(LOCK) $(if $(UPGRADE),--upgrade) --no-annotate --extra operator pyproject.toml -o requirements/operator.txt >/dev/null
	$(LOCK) $(if $(UPGRADE),--upgrade) --no-annotate --extra sidecar --extra otel --extra redis pyproject.toml -o requirements/sidecar.txt >/dev/null
	@# real model servers ask for a newer C library than the oldest one that our own packages must install on
	for wanted in requirements/test-*.in requirements/adapter-*.in; do test ! -f $$wanted || \
		$(LOCK) $(if $(UPGRADE),--upgrade) --no-annotate $$wanted -o $${wanted%.in}.txt >/dev/null; done
	for folder in examples/*/; do test ! -f $$folder/requirements.in || \
		$(LOCK) $(if $(UPGRADE),--upgrade) --no-annotate $$(sed -n 's/^# uv: //p' $$folder/requirements.in) $$folder/requirements.in -o $$folder/requirements.txt >/dev/null; done

.PHONY: generate
generate: $(READY) ## write everything that is generated: CRDs, the chart's copy of them, reference pages
	$(PYTHON) -m modelservice_api.crdgen
	mkdir -p helm/modelservice/crds && cp crds/*.yaml helm/modelservice/crds/
	$(PYTHON) docs/generate.py
	$(PYTHON) docs/performance.py

# --- checks ---

.PHONY: lint
lint: $(READY) ## ruff, mypy (strict), import-linter, and that generated files are up to date
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PYTHON) -m modelservice_api.crdgen --check
	@for crd in crds/*.yaml; do cmp $$crd helm/modelservice/crds/$$(basename $$crd) || \
		{ echo "the chart's CRDs are not the generated ones; run: make generate" >&2; exit 1; }; done
	$(PYTHON) docs/generate.py --check
	$(PYTHON) docs/performance.py --check

.PHONY: test-fast
test-fast: $(READY) ## lint, unit, contract and integration tests; no container engine, no kind
	@$(PYTHON) tests/run.py lint unit contract integration

.PHONY: test
test: $(READY) ## everything: lint, unit, contract, integration, and end to end on kind; installs what that needs
	@$(PYTHON) tests/run.py lint unit contract integration e2e

.PHONY: conformance
conformance: $(READY) ## the official MCP conformance suite against the adapter, both protocol eras; SERVICE=NAMESPACE on a cluster
	@$(PYTHON) tests/conformance/run.py $(if $(SERVICE),--service $(SERVICE))

.PHONY: fuzz
fuzz: $(READY) ## fuzz every parser of the adapter; SECONDS=… for each (60), NAME=… for one; findings stay in tests/fuzz/corpus
	@$(PYTHON) tests/fuzz/run.py $(if $(filter-out environment,$(origin SECONDS)),$(if $(SECONDS),--seconds $(SECONDS))) $(NAME)

.PHONY: bench
bench: $(READY) ## benchmarks; NAME=… runs one; results in build/bench/
	@$(PYTHON) tests/benchmarks/run.py $(NAME)

.PHONY: soak
soak: $(READY) ## ten minutes of mixed traffic, config changes and restarts of the model server; SECONDS=… for another length
	@$(PYTHON) tests/soak/run.py $(if $(filter-out environment,$(origin SECONDS)),$(SECONDS))

# --- images ---

# Wheels are chosen for the images' Python 3.11 on Debian 12, whatever runs this.
ARCH := $(patsubst arm64,aarch64,$(shell uname -m))
TARGET := --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none \
	$(foreach glibc,manylinux_2_36 manylinux_2_35 manylinux_2_34 manylinux_2_31 manylinux_2_28 manylinux_2_27 \
	manylinux_2_24 manylinux2014 manylinux_2_17 manylinux_2_12 manylinux2010 manylinux_2_5 manylinux1,--platform $(glibc)_$(ARCH)) --platform any

build/wheels/operator/requirements.txt: requirements/operator.txt
build/wheels/sidecar/requirements.txt: requirements/sidecar.txt
build/wheels/tvm/requirements.txt: requirements/adapter-tvm.txt
build/wheels/fastapi-digits/requirements.txt: examples/fastapi-digits/requirements.txt
build/wheels/triton-risk/requirements.txt: examples/triton-risk/requirements.txt
$(foreach part,$(IMAGE_PARTS),build/wheels/$(part)/requirements.txt): | $(READY)
	$(SAY) "fetching the wheels of $<, hashes checked: images are built without network"
	@rm -rf $(@D) && mkdir -p $(@D)
	@$(PYTHON) -m pip download -q --disable-pip-version-check --require-hashes --no-deps --only-binary :all: $(TARGET) \
		--dest $(@D) -r $<
	@cp $< $@

# Our own wheel, with a requirements file that names its hash, so that images install it like all others.
SOURCES := $(shell find $(PACKAGES) -type f \( -name '*.py' -o -name py.typed \))
build/wheels/modelservice/requirements.txt: $(SOURCES) pyproject.toml README.md LICENSE | $(READY)
	$(SAY) "building the project's wheel"
	@rm -rf $(@D) && mkdir -p $(@D)
	@$(PYTHON) -m build --wheel --no-isolation --outdir $(@D) . >build/wheel.log 2>&1 || { cat build/wheel.log >&2; exit 1; }
	@cd $(@D) && printf 'modelservice==%s --hash=sha256:%s\n' $(VERSION) "$$(sha256sum *.whl | cut -d' ' -f1)" >requirements.txt

.PHONY: wheels
wheels: $(foreach part,$(IMAGE_PARTS) modelservice,build/wheels/$(part)/requirements.txt)

# The engine that builds: the machine's Docker, or where none answers the cluster command's own.
FIND_ENGINE := 'from localcluster import engine, settings; \
	print(engine.find_engine(settings.read_folders(), settings.read_mode()).address or "")'
# What differs between a folder's name and its image's.
IMAGE_OF_operator := modelservice/operator
IMAGE_OF_sidecar := modelservice/adapter
IMAGE_OF_tvm := modelservice/adapter-tvm
IMAGE_OF_fastapi-digits := modelservice/example-fastapi-digits
IMAGE_OF_triton-risk := modelservice/example-triton-risk
DOCKERFILE_OF = $(firstword $(wildcard $(1)/Dockerfile sidecar/$(1).Dockerfile examples/$(1)/Dockerfile))

.PHONY: images
images: wheels ## build the operator's, the adapter's and the examples' images by `docker build`, without network
	@$(LOCALCLUSTER) base-image >/dev/null
	@address=$$(PYTHONPATH=tests/cluster $(HOST_PYTHON) -c $(FIND_ENGINE)); \
	if [ -n "$$address" ]; then export DOCKER_HOST=$$address; fi; \
	$(foreach part,$(IMAGE_PARTS),echo "==> building $(IMAGE_OF_$(part)):$(VERSION) from $(call DOCKERFILE_OF,$(part))"; \
	docker build --force-rm --network none --build-arg VERSION=$(VERSION) --tag $(IMAGE_OF_$(part)):$(VERSION) \
		--file $(call DOCKERFILE_OF,$(part)) . >build/image-$(part).log 2>&1 || { cat build/image-$(part).log >&2; exit 1; };) \
	docker image ls --filter reference='modelservice/*:$(VERSION)'

# --- cluster and demo ---

.PHONY: cluster-up
cluster-up: ## make the kind cluster, and first whatever it needs; prints the kubeconfig's path
	@$(LOCALCLUSTER) up
	@echo 'to use it from this shell: eval "$$(PYTHONPATH=tests/cluster $(HOST_PYTHON) -m localcluster env)"' >&2

.PHONY: cluster-down
cluster-down: ## remove the kind cluster, and the engine that was started for it
	@$(LOCALCLUSTER) down

.PHONY: demo
demo: $(READY) ## the main job from nothing: cluster, images, chart, a model server, its tools listed and called
	@$(PYTHON) examples/demo/demo.py up

.PHONY: demo-down
demo-down: $(READY) ## take away what `make demo` made, the cluster included
	@$(PYTHON) examples/demo/demo.py down
