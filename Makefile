# The commands of this repository. `make help` lists them.
#
# Every target installs what it needs and is not there yet (deploy/dev/install.sh), and says so.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test check bench chaos chaos-weakened model scale rollout up down

TARGET := $(or $(CARGO_TARGET_DIR),target)
TOOLS := $(TARGET)/tools/bin
INSTALL := deploy/dev/install.sh
# make demo: STACK=full for separate processes on Kafka and Postgres, SPIKE=<users> for that many at
# once, RATE=<claims a second> instead of a probed one.
STACK ?= embedded
# Read by make alone: a test that finds an empty RATE in its environment would take it for a number.
unexport STACK SPIKE RATE

help: ## Lists these commands.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do \
	  printf '  make %-14s %s\n' "$$name" "$$text"; done

demo: ## Sells 1,000 units to 100,000 users and checks every promise (STACK=full, SPIKE=, RATE=).
	$(INSTALL) $(if $(filter full,$(STACK)),full,demo)
	@[ -x $(TARGET)/release/stack ] || echo 'demo: the first build takes some minutes'
	cargo build --release --locked --bins -p dropgate -p dropgate-loadtest -p dropgate-testkit \
	  $(if $(filter full,$(STACK)),-p dropgate-gateway -p dropgate-order-writer -p dropgate-reconciler)
	$(TARGET)/release/stack demo --stack $(STACK) $(if $(SPIKE),--spike $(SPIKE)) $(if $(RATE),--rate $(RATE))

test: ## Runs all tests on real servers.
	$(INSTALL) test
	# Building the tests builds the programs that they start, with one set of features.
	trap '$(TARGET)/debug/stack stop-shared' EXIT; \
	PATH="$(abspath $(TOOLS)):$$PATH" cargo nextest run --workspace --locked
	cargo test --workspace --doc --locked --quiet
	python3 -m unittest discover -s loadtest/oracle

check: ## Checks format, lints, licences, bans and sources.
	$(INSTALL) check
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(TOOLS)/cargo-deny --log-level error --locked check licenses bans sources
	@if $(TOOLS)/cargo-deny --log-level error fetch db >/dev/null 2>&1; then \
	  $(TOOLS)/cargo-deny --log-level error --locked check advisories; \
	else \
	  echo 'check: the advisory database cannot be reached from here: advisories were not checked'; \
	fi

bench: ## Compares what a win costs with what it is made of, side by side in one run.
	$(INSTALL) full
	cargo build --release --locked --bins -p dropgate-gateway -p dropgate-order-writer -p dropgate-bench
	$(TARGET)/release/dropgate-bench

# Programs that are built for the fault suite alone have a folder of their own.
WEAKENED := $(TARGET)/weakened
CHAOS_PARTS := -p dropgate-chaos -p dropgate -p dropgate-gateway -p dropgate-order-writer \
  -p dropgate-reconciler -p dropgate-loadtest

chaos: ## Sells under seeded faults and checks every promise (SEEDS=, or SEED= for one again).
	$(INSTALL) test
	cargo build --locked --bins $(CHAOS_PARTS)
	$(TARGET)/debug/dropgate-chaos --out $(TARGET)/chaos $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10))

chaos-weakened: ## Shows that the fault suite finds each mechanism that is switched off.
	$(INSTALL) test
	mkdir -p $(WEAKENED) && ln -sfn $(abspath $(TARGET))/testkit $(WEAKENED)/testkit
	CARGO_TARGET_DIR=$(WEAKENED) cargo build --locked --bins $(CHAOS_PARTS) \
	  --features dropgate-engine/weakened
	$(WEAKENED)/debug/dropgate-chaos --out $(TARGET)/chaos --seeds 20 \
	  --weakened told_at_reply,told_at_ack,second_record,no_chain,reload_on_noscript

model: ## Searches the protocol's model to its ends (DEEP=1: larger worlds, which take longer).
	cargo build --release --locked --bins -p dropgate-model
	$(TARGET)/release/dropgate-model $(if $(DEEP),--deep)

scale: ## Recovers a sale of a million wins, against a bare load of the same keys (WINS=).
	$(INSTALL) full
	cargo build --release --locked --bins -p dropgate -p dropgate-gateway -p dropgate-order-writer -p dropgate-bench
	$(TARGET)/release/scale $(if $(WINS),--wins $(WINS))

rollout: ## Replaces the binaries of an earlier commit by these in mid-sale (PREVIOUS=<commit>).
	$(INSTALL) full
	cargo build --locked --bins $(CHAOS_PARTS)
	loadtest/chaos/previous.sh $(or $(PREVIOUS),HEAD~1) $(TARGET)/previous
	$(TARGET)/debug/rollout --previous $(TARGET)/previous/target/debug --out $(TARGET)/rollout

up: ## Starts the full stack for development: Redis, Kafka, Postgres, two gateways, an order-writer.
	$(INSTALL) full
	cargo build --locked --bins -p dropgate -p dropgate-gateway -p dropgate-order-writer -p dropgate-testkit
	$(TARGET)/debug/stack up

down: ## Stops what `make up` started.
	@if [ -x $(TARGET)/debug/stack ]; then $(TARGET)/debug/stack down; fi
