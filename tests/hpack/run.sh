#!/usr/bin/env bash
# Header compression of HTTP/2 against Go's, both ways: `tests/hpack/run.sh`. Needs Go and its module proxy.
#
# Builds the peer and runs the unit tests of `ringmain-wire` that talk to it, which are left out where $HPACK_PEER names none.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
command -v go >/dev/null || { echo "needs go; install it and run this again" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
(cd "$here" && go build -o "$folder/peer" .)
cd "$here/../.."
HPACK_PEER=$folder/peer cargo test --release -p ringmain-wire --lib hpack::tests::go -- --ignored --nocapture
