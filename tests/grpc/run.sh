#!/usr/bin/env bash
# The runner of connectrpc.com/conformance against our server: `tests/grpc/run.sh SERVER`, SERVER being the example
# `grpc_conformance` of ringmain-web.
#
# All its cases for gRPC-Web over HTTP/1.1, in the clear, by TLS and with certificates of clients, as config.yaml asks for. Needs Go
# and its module proxy; what is fetched stays in $GRPC_CACHE (a folder of the user's cache).
set -euo pipefail

server=$(realpath "${1:?usage: tests/grpc/run.sh SERVER}")
cd "$(dirname "$0")"
cache=${GRPC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmain-grpc}
version=v1.0.7
command -v go >/dev/null || { echo "needs go; install it and run this again" >&2; exit 2; }

runner=$cache/$version/connectconformance
if [ ! -x "$runner" ]; then
    mkdir -p "$cache/$version"
    GOBIN=$cache/$version GOFLAGS=-mod=mod go install "connectrpc.com/conformance/cmd/connectconformance@$version"
fi
"$runner" --mode server --conf config.yaml -- "$server"
