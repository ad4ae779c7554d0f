#!/usr/bin/env bash
# Builds one target for libFuzzer, guided by coverage: `fuzz/build.sh TARGET FILE`. On the pinned stable toolchain; needs g++.
#
# Everything of the program is instrumented, the readers ours are compared with too. Lines are known, so that
# `hour.sh` can tell whose code a new edge is in.
set -euo pipefail

target=${1:?usage: fuzz/build.sh TARGET FILE}
file=$(realpath -m "${2:?usage: fuzz/build.sh TARGET FILE}")
cd "$(dirname "$0")"
export RUSTFLAGS="-Cpasses=sancov-module -Ccodegen-units=1 -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares
  -Cdebuginfo=line-tables-only"
triple=$(rustc -vV | sed -n 's/^host: //p')
# Cargo strips what it was not itself asked for.
cargo rustc --quiet --release --target "$triple" --target-dir target/libfuzzer --features libfuzzer --bin "$target" -- -Cstrip=none
# A copy, so that a later build does not change the program that runs.
cp "target/libfuzzer/$triple/release/$target" "$file"
