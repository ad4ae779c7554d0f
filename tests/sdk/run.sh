#!/usr/bin/env bash
# Centrifuge's own SDKs against our server, unchanged: `tests/sdk/run.sh SERVER CASES`, SERVER being the example `sdk_server`, and CASES the
# example `feature_cases`, whose deltas and tag filters the library of Centrifugo checks (features/).
#
# The Go SDK's own tests run from its module's source, the npm SDK by sessions.mjs on each of its transports, WebSockets on streams of HTTP/2 among
# them (streams.mjs); calls.mjs listens by gRPC-Web (npm's grpc-web) and gRPC (grpcurl); gocent calls the API (gocent/). The packages of npm
# (centrifuge) carry no tests, so its own suite cannot be had from the registry; sessions.mjs is ours. The source package of centrifuge-python does,
# but they wait without a deadline for namespaces that our server does not have, so they are not run here. Needs Go, Node and the package registries;
# what is fetched stays in $SDK_CACHE (a folder of the user's cache). grpcurl calls the server API, too, with the definition of
# Centrifugo's module.
set -euo pipefail

server=$(realpath "${1:?usage: tests/sdk/run.sh SERVER CASES}")
cases=$(realpath "${2:?usage: tests/sdk/run.sh SERVER CASES}")
cd "$(dirname "$0")"
source ../support/listening.sh
cache=${SDK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmain-sdk}
go_sdk=v0.12.1
npm_sdk=5.8.0
npm_eventsource=4.1.0
npm_grpc_web=2.1.1
grpcurl=v1.9.4
centrifugo=v6.9.1
# The version in that of Centrifugo.
centrifuge=v0.38.1-0.20260711082514-84d40cc4dbf6
for program in go node npm; do
    command -v "$program" >/dev/null || { echo "needs $program; install it and run this again" >&2; exit 2; }
done
mkdir -p "$cache/npm"

said=$(mktemp)
"$server" 127.0.0.1:0 2>"$said" &
running=$!
trap 'kill "$running" 2>/dev/null; wait "$running" 2>/dev/null; rm -f "$said"' EXIT
port=$(port_of "$said" "$running")

if [ ! -d "$cache/go-$go_sdk" ]; then
    folder=$(cd "$cache" && GOFLAGS=-mod=mod go mod download -json "github.com/centrifugal/centrifuge-go@$go_sdk" \
        | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    cp -r "$folder" "$cache/go-$go_sdk.new"
    chmod -R u+w "$cache/go-$go_sdk.new"
    mv "$cache/go-$go_sdk.new" "$cache/go-$go_sdk"
fi
tests=$(mktemp -d)
trap 'kill "$running" 2>/dev/null; wait "$running" 2>/dev/null; rm -rf "$said" "$tests"' EXIT
cp -r "$cache/go-$go_sdk/." "$tests"
# Its tests name the place where they expect a server.
sed -i "s/localhost:8000/127.0.0.1:$port/" "$tests"/*_test.go
# The tests of a Go package in the current folder, and how many there were: `go_tests NAME ARGUMENT…`.
go_tests() {
    local name=$1 out
    shift
    out=$(mktemp)
    if ! GOFLAGS=-mod=mod go test -count=1 -v "$@" ./... >"$out" 2>&1; then
        grep -v "^=== " "$out" | tail -60
        echo "$name: $(grep -c "^--- PASS" "$out") passed, $(grep -c "^--- FAIL" "$out") failed"
        rm -f "$out"
        return 1
    fi
    echo "$name: $(grep -c "^--- PASS" "$out") passed, 0 failed, $(grep -c "^--- SKIP" "$out") skipped"
    rm -f "$out"
}
(cd "$tests" && go_tests "centrifuge-go $go_sdk, its own tests" -timeout 300s)
# Its own suite has one test, which needs no server: ours calls each method.
(cd gocent && SERVER=127.0.0.1:$port go_tests "gocent v3.3.0, tests/sdk/gocent")


if [ ! -d "$cache/centrifuge-$centrifuge" ]; then
    folder=$(cd "$cache" && GOFLAGS=-mod=mod go mod download -json "github.com/centrifugal/centrifuge@$centrifuge" \
        | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    cp -r "$folder" "$cache/centrifuge-$centrifuge.new"
    chmod -R u+w "$cache/centrifuge-$centrifuge.new"
    # Its own tests of filters need further modules.
    rm "$cache/centrifuge-$centrifuge.new"/internal/filter/*_test.go
    mv "$cache/centrifuge-$centrifuge.new" "$cache/centrifuge-$centrifuge"
fi
cp features/features_test.go "$cache/centrifuge-$centrifuge/internal/filter/"
seed=${SEED:-$RANDOM}
"$cases" "$seed" >"$tests/cases"
(cd "$cache/centrifuge-$centrifuge/internal/filter" \
    && CASES=$tests/cases go_tests "deltas and tag filters in centrifuge $centrifuge, SEED=$seed")

if [ ! -x "$cache/$grpcurl/grpcurl" ]; then
    GOBIN=$cache/$grpcurl GOFLAGS=-mod=mod go install "github.com/fullstorydev/grpcurl/cmd/grpcurl@$grpcurl"
fi
if [ ! -f "$cache/api-$centrifugo.proto" ]; then
    folder=$(cd "$cache" && GOFLAGS=-mod=mod go mod download -json "github.com/centrifugal/centrifugo/v6@$centrifugo" \
        | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    cp "$folder/internal/apiproto/api.proto" "$cache/api-$centrifugo.proto"
fi
cp ./*.mjs unistream.proto "$cache/npm/"
cp -f "$cache/api-$centrifugo.proto" "$cache/npm/api.proto"
(cd "$cache/npm" \
    && { [ -d node_modules/centrifuge ] && [ -d node_modules/eventsource ] && [ -d node_modules/grpc-web ] \
        || npm install --silent --no-save "centrifuge@$npm_sdk" ws@8 "eventsource@$npm_eventsource" \
            "grpc-web@$npm_grpc_web"; } \
    && node sessions.mjs "127.0.0.1:$port" && node calls.mjs "127.0.0.1:$port" "$cache/$grpcurl/grpcurl")
