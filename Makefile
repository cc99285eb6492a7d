# SPDX-License-Identifier: Apache-2.0
# Thin: each target is one script, which can be run by itself. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-oldest test-runtime-threads test-frameworks mutants lint test-threads bench bench-agent bench-comm bench-loader bench-models bench-ops bench-optim bench-recovery bench-scale reach reach-versions diagnose reliability test-rdma test-nccl test-kueue test-schedulers test-pod-groups coverage cluster cluster-down images release

help: ## show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install the Debian packages that Paceline builds and tests with
	scripts/setup

build: ## configure and build everything (preset release, build/release)
	scripts/build

demo: ## train the digits example on this machine with its live step-time breakdown
	scripts/demo

test: ## every test: unit (under AddressSanitizer and UndefinedBehaviorSanitizer), simulation, runtime, breakdown, conformance, chart, dashboard, end to end on a real cluster
	scripts/test

test-oldest: ## every test of the runtime on the oldest supported PyTorch, Debian's 1.13
	scripts/test oldest

test-frameworks: ## examples of TensorFlow, Paddle, JAX, … with their real packages: 6 GB, cached
	scripts/test frameworks

lint: ## format, static checks and house rules
	scripts/lint

test-nccl: ## the newest NCCL loads its profiler plugin: 0.3 GB, cached; needs no GPU
	scripts/test nccl

test-schedulers: ## jobs that Volcano and Coscheduling bind, on the real two-node cluster; both are built from their Go modules, once
	scripts/test schedulers

test-kueue: ## jobs of a LocalQueue under Kueue's own controller, on the real two-node cluster; Kueue is built from its Go module, once
	scripts/test kueue

test-pod-groups: ## jobs that Kubernetes 1.37 binds as its own gangs, on a real two-node cluster of it; it is built from its Go module, once
	scripts/test pod-groups

reliability: ## each part of a real three-node cluster killed while jobs run and wait; writes the table of docs/operate/reliability.md; needs root
	scripts/build release paceline-operator paceline-agent paceline-probe paceline-launcher paceline_runtime
	tests/cluster/build-tools
	scripts/test --no-build reliability

test-rdma: ## tests of RDMA, on soft RoCE in a virtual machine
	scripts/test rdma

diagnose: ## injected faults in real PyTorch jobs against what the launcher finds, and clean runs; some minutes
	scripts/build release paceline_cli paceline-launcher paceline_runtime
	scripts/test --no-build diagnosis

mutants: ## mistakes put into operator and agent on purpose, each of which a test must notice
	scripts/mutants

test-threads: ## unit tests of code with threads, under ThreadSanitizer
	scripts/test tsan

test-runtime-threads: ## the runtime's part of them, which CI takes: its threads live in users' processes
	scripts/test runtime-threads

coverage: ## lines that the tests execute, by folder, in build/coverage/report
	scripts/coverage

bench: ## every benchmark; each ends with one line of JSON
	scripts/bench

bench-comm: ## allreduces, and steps of a model replayed, of 4 hosts x 8 ranks over links of a known rate, against Gloo and Open MPI; needs root
	scripts/build release paceline_runtime
	bench/comm/run --all

bench-loader: ## batches through loader workers, JPEG pictures and tar shards, each against PyTorch's and Python's own way
	scripts/build release paceline_runtime
	bench/loader/run
	bench/images/run
	bench/shards/run

bench-models: ## whole vision models and an encoder as they are trained, compiled, with Paceline, and with both; draws docs/pictures/models.svg
	scripts/build release paceline_runtime
	bench/models/run --plot docs/pictures/models.svg

bench-ops: ## window attention, FCOS3D targets, SimOTA and voxelisation on the CPU against the original algorithms, also compiled
	scripts/build release paceline_runtime
	bench/ops/run

bench-optim: ## optimizer steps on the CPU against PyTorch's, and what a step on a GPU costs its host
	scripts/build release paceline_runtime fake_cuda
	bench/optim/run
	bench/optim/run --host

bench-agent: ## what the agent costs its node: probe, processor time, memory, a soak; RECORDS=N of the soak
	scripts/build release
	bench/agent/run --records $(or $(RECORDS),1e8)

bench-recovery: ## seconds until all ranks train again after one was killed, and after a node was lost that has a spare
	scripts/build release paceline_cli paceline-launcher paceline_runtime
	bench/recovery/run
	bench/recovery/run spares

bench-scale: ## the operator on 5,000 simulated nodes: 500 jobs of 20 pods and one of 2,048; SCALE=0.1 takes a tenth
	scripts/build release paceline-operator gang_writes
	bench/scale/run --scale $(or $(SCALE),1)

reach: ## twenty trainers and recipes from PyPI as they are, without and with Paceline; writes docs/reach.md
	scripts/build release paceline_cli paceline-launcher paceline_runtime
	bench/reach/measure --out bench/reach/record.json --page docs/reach.md

reach-versions: ## what acts on releases 2.1 to 2.15 of PyTorch; writes docs/reach-versions.md; 10 GB, cached
	scripts/build release paceline_runtime
	bench/reach/versions/measure --out bench/reach/versions/record.json --page docs/reach-versions.md

cluster: ## a real two-node Kubernetes on this machine, with Paceline and the examples' images
	scripts/cluster up

cluster-down: ## end that cluster
	scripts/cluster down

images: ## docker-archive tars in build/images: operator, agent, runtime, and what the examples and cluster tests run in
	scripts/images

release: ## what a release ships, each part checked by installing it, in build/release-artifacts
	scripts/release
