#!/usr/bin/env bash
# Centrifugo as an oracle: `tests/centrifugo/run.sh [--binary RINGMAIN] [--only SCENARIO,…]`.
#
# The server is built from its Go module once and stays in $CENTRIFUGO_CACHE (a folder of the user's cache); CENTRIFUGO names one that exists.
set -euo pipefail

version=v6.9.1
cache=${CENTRIFUGO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmain-centrifugo}/$version
centrifugo=${CENTRIFUGO:-$cache/centrifugo}
if [ ! -x "$centrifugo" ]; then
    command -v go >/dev/null || { echo "needs go; install it, or name a Centrifugo $version with CENTRIFUGO" >&2; exit 2; }
    GOBIN=$cache GOFLAGS=-mod=mod go install "github.com/centrifugal/centrifugo/v6@$version"
fi
exec python3 "$(dirname "$0")/oracle.py" --centrifugo "$centrifugo" "$@"
