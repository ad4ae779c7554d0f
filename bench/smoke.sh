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
exec python3 -m unittest --quiet test_bench test_h2 test_h2proxy test_http test_client test_ws test_tls test_shop test_proxy test_policies test_tune_noise test_push test_programs
