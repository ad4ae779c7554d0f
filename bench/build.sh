#!/usr/bin/env bash
# Builds the servers and clients of the benchmarks into $PEERS (default target/peers).
#
#   bench/build.sh                    everything: client floor go
#   bench/build.sh client floor       only these
#
# Writes below $PEERS, besides the download caches of cargo and go. Needs gcc, cargo and,
# for the Go peers, go 1.25 or newer.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
PEERS=${PEERS:-$(dirname "$here")/target/peers}
bin=$PEERS/bin
gnet_version=v2.9.4

build_client() {
  local name
  for name in lg hold; do
    "${CC:-gcc}" -O2 -march=native -Wall -Wextra -o "$bin/$name" "$here/client/$name.c"
  done
}

build_floor() {
  (cd "$here/floor" &&
    CARGO_TARGET_DIR=$PEERS/floor RUSTFLAGS="-C target-cpu=native" cargo build --locked --release --quiet)
  cp "$PEERS/floor/release/floor" "$bin/floor"
}

build_go() {
  cd "$here/peers"
  local found
  found=$(go list -m -f '{{.Version}}' github.com/panjf2000/gnet/v2)
  if [ "$found" != "$gnet_version" ]; then
    echo "build.sh: the comparison is with gnet $gnet_version, go.mod asks for $found" >&2
    exit 1
  fi
  go build -mod=readonly -o "$bin/gnet" ./gnet
  go build -mod=readonly -o "$bin/gonet" ./gonet
}

mkdir -p "$bin"
[ $# -gt 0 ] || set -- client floor go
for part in "$@"; do
  case $part in
    client | floor | go) ;;
    *) echo "build.sh: expected client, floor or go, found \"$part\"" >&2; exit 2 ;;
  esac
  ("build_$part")
done
echo "built $* into $bin"
