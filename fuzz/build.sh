#!/usr/bin/env bash
# Builds the targets for libFuzzer, guided by coverage: `fuzz/build.sh FILE`. On the pinned stable toolchain; needs g++.
# The variable FUZZ_TARGET selects the target when the program starts.
#
# Everything of the program is instrumented, the readers ours are compared with too. Lines are known, so that
# `hour.sh` can tell whose code a new edge is in.
set -euo pipefail

file=$(realpath -m "${1:?usage: fuzz/build.sh FILE}")
cd "$(dirname "$0")"
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares
  -Cdebuginfo=line-tables-only"
triple=$(rustc -vV | sed -n 's/^host: //p')
# Cargo strips what it was not itself asked for.
folder=${CARGO_TARGET_DIR:-$PWD/../target}/libfuzzer
cargo rustc --quiet --profile fuzz --target "$triple" --target-dir "$folder" --package ringmain-fuzz --bin libfuzzer -- -Cstrip=none
# A copy, so that a later build does not change the program that runs.
cp "$folder/$triple/fuzz/libfuzzer" "$file"
