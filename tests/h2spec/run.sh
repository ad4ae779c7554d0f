#!/usr/bin/env bash
# h2spec against our server, all cases, by prior knowledge, in the clear beside HTTP/1.1, and by TLS: `tests/h2spec/run.sh SERVER`, SERVER being the example `h2_server`.
#
# One case must fail where both share the port: what is no preface of HTTP/2 is answered as HTTP/1.1 there (RFC 9112 §3), and h2spec
# wants the connection closed without a word. Elsewhere none may. Needs Go and its module proxy; what is built stays in $H2SPEC_CACHE (a
# folder of the user's cache).
set -euo pipefail

server=$(realpath "${1:?usage: tests/h2spec/run.sh SERVER}")
source "$(dirname "$0")/../support/listening.sh"
cache=${H2SPEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmain-h2spec}
version=v2.2.1+incompatible
command -v go >/dev/null || { echo "needs go; install it and run this again" >&2; exit 2; }
if [ ! -x "$cache/h2spec-$version" ]; then
    mkdir -p "$cache/module"
    (cd "$cache/module" \
        && { [ -f go.mod ] || go mod init scratch; } \
        && go get "github.com/summerwind/h2spec/cmd/h2spec@$version" golang.org/x/net@latest \
        && go build -o "$cache/h2spec-$version" github.com/summerwind/h2spec/cmd/h2spec)
fi

said=$(mktemp)
found=$(mktemp)
running=
trap '[ -z "$running" ] || kill "$running" 2>/dev/null; wait; rm -f "$said" "$found"' EXIT

# Runs all cases against the server started with these arguments; prints the names of those that fail.
spec() {
    "$server" 127.0.0.1:0 ${1:+"$1"} 2>"$said" &
    running=$!
    port=$(port_of "$said" "$running")
    shift
    "$cache/h2spec-$version" -h 127.0.0.1 -p "$port" -o 5 "$@" >"$found" 2>&1 || true
    kill "$running" && wait "$running" || true
    running=
    tail -n 1 "$found"
}

all_pass() {
    spec "$@"
    if ! grep -q '^145 tests, 145 passed' "$found"; then
        sed -n '/^Failures/,$p' "$found" >&2
        echo "as \`$1\`: expected all cases to pass" >&2
        exit 1
    fi
}

all_pass h2c
all_pass tls -t -k
spec ""
clear=$(sed -n '/^Failures/,$s/^ *× //p' "$found")
if [ "$clear" != "2: Sends invalid connection preface" ] || ! grep -q '^145 tests, 144 passed' "$found"; then
    sed -n '/^Failures/,$p' "$found" >&2
    echo "beside HTTP/1.1: expected all cases but that of the invalid preface to pass" >&2
    exit 1
fi
