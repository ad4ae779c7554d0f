#!/usr/bin/env bash
# Does the harness work here? Builds the clients and the floor, `ringmain` without optimisation,
# and runs the harness's own tests: about a minute once built, no Go, no wrk, no timing assertions. What needs the HTTPS
# client says that it is skipped, unless `bench/build.sh tls` has built it.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
"$here/build.sh" client floor
# With the features of the tests: nothing is built twice.
(cd "$here/.." && cargo test --workspace --all-features --no-run --quiet)
cd "$here"
exec python3 -m unittest --quiet test_bench test_h2 test_h2proxy test_http test_client test_ws test_tls test_shop test_proxy test_policies test_tune_noise
