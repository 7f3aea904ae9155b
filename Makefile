# Two commands do all set-up on a fresh Debian 12 with a Rust toolchain: `make demo`, `make test`.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help demo test bench soak

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /  make \1 \t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## release build, then two endpoints, a load balancer, a waiting room and browsers to play with (ARGS=... passes flags)
	@scripts/setup build
	cargo run --release --locked --package usher -- demo $(ARGS)

test: ## everything the gate runs: format, lint, docs, unit, simulation, end to end, conformance
	@scripts/setup test
	cargo xtask ci

bench: ## usher beside haproxy and nginx: table on the terminal and in bench/RESULTS.md
	@scripts/setup bench
	cargo build --release --locked --package usher --bin usher --example echo
	cargo build --release --locked --package usher-rooms --example seed --example waiting
	cargo build --release --locked --package usher-cdp --example drive
	cargo build --release --locked --package usher-browsers --example standin
	python3 bench/run.py $(ARGS)
	python3 bench/api.py
	python3 bench/rooms.py
	python3 bench/browsers.py

soak: ## long runs: wide seeds (SEEDS=...), real load, fuzzing (SECONDS_EACH=... per target)
	@scripts/setup test
	cargo build --release --locked --package usher
	scripts/soak
