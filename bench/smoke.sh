#!/usr/bin/env bash
# Tests the benchmark harness: builds the clients and the floor, takes the development build of `ringmain` that the tests
# use, and runs the harness's own tests. About a minute once built; no Go, no wrk, no timing assertions. Tests that need the
# HTTPS client report that they are skipped, unless `bench/build.sh tls` has built it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
"$here/build.sh" client floor
# The selection and features of the test command, so that nothing is built twice.
(cd "$here/.." && cargo test --workspace --all-features --no-run --quiet)
cd "$here"
# check MODULE: runs one module of tests; prints its output if it fails, its last line (with the tests that were skipped) if not.
check() {
  local output
  if output=$(python3 -m unittest --quiet "$1" 2>&1); then
    printf '%-16s %s\n' "$1" "$(tail -n 1 <<<"$output")"
  else
    printf '%-16s FAILED\n%s\n' "$1" "$output"
    return 1
  fi
}
export -f check
# Their servers and clients wait for each other: several at once, the longest first. Exit code 123: a module failed.
printf '%s\n' test_client test_bench test_http test_tls test_push test_cluster test_h2 test_h2proxy test_ws test_shop test_proxy test_policies test_extensions test_tune_noise test_programs test_chart test_readme |
  xargs -P "$(($(nproc) + 1))" -I '{}' bash -c 'check "{}"'
