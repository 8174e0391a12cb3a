# Every target installs what it needs, says what it is doing, and caches. Start with `make demo` or `make test`.
SHELL := /bin/sh
PY := .venv/bin/python
export PYTHONPATH := e2e
PYTEST := .venv/bin/pytest

.PHONY: help demo demo-vllm test e2e e2e-gateway-short e2e-full bench-control bench-gateway bench-judge lint generate lock \
  cluster clean
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 19

demo: .venv/.ready ## the main job end to end on a real Kubernetes: a canary is promoted, a broken drafter is not
	@$(PY) e2e/demo.py

demo-vllm: .venv/.ready ## the same story with real vLLM in the pods, on the CPU: real speculation, real counters
	@$(PY) e2e/demo_vllm.py

test: .venv/.ready ## unit tests, golden transcripts, and the operator against a real kube-apiserver
	@$(PY) -m harness build
	@$(PYTEST) tests -n auto --maxprocesses 4 --dist loadfile

e2e: .venv/.ready ## scenarios on a real one-node cluster (root); GATEWAY=envoy or contour: those of a real gateway
	@$(PY) -m harness build
	@$(PYTEST) e2e -m $(if $(GATEWAY),gateway,'not vllm')

e2e-gateway-short: .venv/.ready ## one promotion through Envoy Gateway under load, no request lost (root)
	@$(PY) -m harness build
	@GATEWAY=envoy $(PYTEST) e2e -m gateway -k short

e2e-full: demo e2e demo-vllm ## everything that runs on a cluster or on a real vLLM
	@$(MAKE) e2e GATEWAY=envoy
	@$(MAKE) e2e GATEWAY=contour
	@$(PYTEST) e2e -m vllm

bench-control: .venv/.ready ## what a rollout and a fleet at rest cost, beside Argo Rollouts, into docs/benchmarks.md (root)
	@$(PY) -m bench.control

bench-gateway: .venv/.ready ## promotions behind a real gateway, beside Argo Rollouts and Flagger, into docs/benchmarks.md (root)
	@$(PY) -m bench.gateway

bench-judge: .venv/.ready ## canaries whose truth is known before our judge and those of others, into docs/benchmarks.md
	@$(PY) -m bench.judge

lint: .venv/.ready ## ruff, mypy, import contracts, and whether generated files are current
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache > .lint-imports.log || { cat .lint-imports.log; exit 1; }
	@$(PY) -m specfleet.api.crd --check

generate: .venv/.ready ## crds/, the chart's copy, docs/conditions.md and docs/api.md from the code
	@$(PY) -m specfleet.api.crd

cluster: .venv/.ready ## a cluster to play with, until Ctrl-C (root)
	@$(PY) -m harness up

lock: .venv/.ready ## pin the newest versions that pyproject.toml allows
	@.venv/bin/pip-compile -q --upgrade --strip-extras --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links --no-annotate --no-header -o requirements.lock pyproject.toml
	@.venv/bin/pip-compile -q --upgrade --extra cli --extra dev --strip-extras --allow-unsafe -c requirements.lock \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-annotate --no-header \
	  -o requirements-dev.lock pyproject.toml

clean: ## remove the virtual environment and what tools cached here; the compiled Kubernetes stays in ~/.cache/specfleet
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .lint-imports.log

.venv/.ready: requirements-dev.lock pyproject.toml
	@sh e2e/venv.sh
	@touch $@
