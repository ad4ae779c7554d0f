#!/usr/bin/env bash
# HTTP/2, WebSockets on its streams, server-sent events and gRPC-Web as Chromium and Firefox see them, through the gateway:
#
#   tests/browsers/run.sh target/release/ringmain target/release/examples/grpc
#
# The second is the example `grpc` of ringmain. Needs both browsers, Node and npm, and openssl; what is fetched stays in node_modules beside
# this file. Exit code: 0 all is well, 1 something is not, 2 could not be run.
set -euo pipefail

usage="usage: tests/browsers/run.sh RINGMAIN GRPC_EXAMPLE"
ringmain=$(realpath "${1:?$usage}")
example=$(realpath "${2:?$usage}")
cd "$(dirname "$0")"
source ../support/listening.sh
for program in node npm openssl chromium firefox; do
    command -v "$program" >/dev/null || {
        echo "needs $program (on Debian: nodejs, npm, openssl, chromium, firefox-esr); install it and run this again" >&2
        exit 2
    }
done
[ -d node_modules/puppeteer-core ] || npm ci --silent --no-audit --no-fund

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

# start NAME COMMAND...: has it say in $work/NAME.log where it listens, and sets `port`.
start() {
    local log=$work/$1.log
    shift
    "$@" >>"$work/access.log" 2>"$log" &
    local pid=$!
    pids+=("$pid")
    port=$(port_of "$log" "$pid")
}

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
start calls "$example" 127.0.0.1:0
calls=$port
start pages "$ringmain" run --listen 127.0.0.1:0
pages=$port
cat >"$work/gateway.yaml" <<EOF
listeners: {all: {address: 127.0.0.1:0, tls: {certificates: localhost}}}
certificates: {localhost: {chain: cert.pem, key: key.pem}}
access_log: stdout
routes:
  calls:
    rules:
      - {match: /demo.Greeter/, to: "h2c://127.0.0.1:$calls", grpc_web: true}
  pages:
    rules:
      - {match: /, to: "http://127.0.0.1:$pages"}
EOF
start gateway "$ringmain" run "$work/gateway.yaml"

code=0
for browser in Chromium Firefox; do
    executable=$(command -v "${browser,,}")
    : >"$work/access.log"
    node look.mjs "{\"name\": \"$browser\", \"executable\": \"$executable\", \"origin\": \"https://localhost:$port\", \"log\": \"$work/access.log\"}" || code=$?
done
exit "$code"
