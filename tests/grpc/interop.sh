#!/usr/bin/env bash
# The interoperability client of grpc-go: `tests/grpc/interop.sh SERVER RINGMAIN`, SERVER being the example `grpc_interop` of ringmain-web,
# RINGMAIN the binary. Every case that needs no cloud, against the server, and again with the gateway in front. Needs Go and its module proxy; what is
# fetched stays in $GRPC_CACHE (a folder of the user's cache).
set -euo pipefail

usage="usage: tests/grpc/interop.sh SERVER RINGMAIN"
server=$(realpath "${1:?$usage}")
ringmain=$(realpath "${2:?$usage}")
source "$(dirname "$0")/../support/listening.sh"
version=v1.85.0
cache=${GRPC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmain-grpc}/interop-$version
cases=(empty_unary large_unary client_streaming server_streaming ping_pong empty_stream timeout_on_sleeping_server
    cancel_after_begin cancel_after_first_response status_code_and_message special_status_message custom_metadata
    unimplemented_method unimplemented_service pick_first_unary rpc_soak channel_soak)
command -v go >/dev/null || { echo "needs go; install it and run this again" >&2; exit 2; }

if [ ! -x "$cache/client" ]; then
    mkdir -p "$cache"
    GOBIN=$cache GOFLAGS=-mod=mod go install "google.golang.org/grpc/interop/client@$version"
fi

work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap finish EXIT

# passes PORT WHOM: all cases.
passes() {
    local name failed=0
    for name in "${cases[@]}"; do
        if ! timeout 60 "$cache/client" --server_host 127.0.0.1 --server_port "$1" --test_case "$name" >"$work/client.log" 2>&1; then
            { echo "$2: $name: FAILED"; tail -n 5 "$work/client.log"; } >&2
            failed=$((failed + 1))
        fi
    done
    echo "$2: $((${#cases[@]} - failed)) of ${#cases[@]} cases of grpc-go's interoperability client passed"
    [ "$failed" -eq 0 ]
}

"$server" 127.0.0.1:0 2>"$work/server.log" &
pids+=($!)
upstream=$(port_of "$work/server.log" "${pids[0]}")
printf 'listen: 127.0.0.1:0\nroutes: {calls: {rules: [{to: "h2c://127.0.0.1:%s"}]}}\n' "$upstream" >"$work/gateway.yaml"
"$ringmain" run "$work/gateway.yaml" 2>"$work/gateway.log" &
pids+=($!)
gateway=$(port_of "$work/gateway.log" "${pids[1]}")

result=0
passes "$upstream" "server" || result=1
passes "$gateway" "behind the gateway" || result=1
exit "$result"
