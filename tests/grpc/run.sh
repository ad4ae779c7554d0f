#!/usr/bin/env bash
# Clients of gRPC that are not ours: `tests/grpc/run.sh SERVER EXAMPLE RINGMAIN`, SERVER being the example `grpc_conformance` of
# ringmain-web, EXAMPLE the example `grpc` of ringmain, RINGMAIN the binary.
#
# First the runner of connectrpc.com/conformance: all its cases for gRPC over HTTP/2 and for gRPC-Web over HTTP/1.1 and HTTP/2, in the
# clear, by TLS and with certificates of clients, as config.yaml asks for; those in the clear again with the gateway in front (behind.py),
# which translates gRPC-Web. Then the npm package grpc-web by client.mjs. Needs Go, Node
# and the package registries; what is fetched stays in $GRPC_CACHE (a folder of the user's cache).
set -euo pipefail

usage="usage: tests/grpc/run.sh SERVER EXAMPLE RINGMAIN"
server=$(realpath "${1:?$usage}")
example=$(realpath "${2:?$usage}")
ringmain=$(realpath "${3:?$usage}")
cd "$(dirname "$0")"
source ../support/listening.sh
cache=${GRPC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmain-grpc}
version=v1.0.7
npm_client=2.1.1
npm_xhr=0.2.1
for program in go node npm python3; do
    command -v "$program" >/dev/null || { echo "needs $program; install it and run this again" >&2; exit 2; }
done

runner=$cache/$version/connectconformance
if [ ! -x "$runner" ]; then
    mkdir -p "$cache/$version"
    GOBIN=$cache/$version GOFLAGS=-mod=mod go install "connectrpc.com/conformance/cmd/connectconformance@$version"
fi
"$runner" --mode server --conf config.yaml -- "$server"
"$runner" --mode server --conf config-behind.yaml -- ./behind.py "$ringmain" "$server"

said=$(mktemp)
"$example" 127.0.0.1:0 2>"$said" &
running=$!
trap 'kill "$running" 2>/dev/null; wait "$running" 2>/dev/null; rm -f "$said"' EXIT
port=$(port_of "$said" "$running")

mkdir -p "$cache/npm"
cp client.mjs "$cache/npm/"
cd "$cache/npm"
if [ ! -d node_modules/grpc-web ] || [ ! -d node_modules/xhr2 ]; then
    npm install --silent --no-save "grpc-web@$npm_client" "xhr2@$npm_xhr"
fi
node client.mjs "127.0.0.1:$port"
