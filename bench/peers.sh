#!/usr/bin/env bash
# Builds nginx 1.26 and HAProxy 3.0 from the upstream archives of Debian's trixie into $PEERS (default target/peers).
#
#   bench/peers.sh                    both
#   bench/peers.sh nginx              one of them
#
# The benchmarks prefer programs in $PEERS/bin to those of the distribution, and print their versions. The archives are fetched
# by `apt-get source` with a list of sources of its own below $PEERS; nothing in /etc is changed. Only `.orig` archives are
# used: no patches of the distribution. DEBIAN_MIRROR names the mirror (default: the one that this machine's apt uses).
# Takes three minutes of one CPU. Needs apt, make, gcc and the headers of OpenSSL, PCRE2 and zlib, which it names if missing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
PEERS=${PEERS:-$(dirname "$here")/target/peers}
bin=$PEERS/bin
work=$PEERS/debian
release=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
nginx_version=1.26
haproxy_version=3.0

fail() {
  echo "peers.sh: $*" >&2
  exit 1
}

# Compiles a line with each header, so that a missing package is named before anything is fetched.
require_headers() {
  local missing=()
  printf '#include <openssl/ssl.h>\n' | "${CC:-gcc}" -E -o /dev/null - 2>/dev/null || missing+=(libssl-dev)
  printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n' | "${CC:-gcc}" -E -o /dev/null - 2>/dev/null ||
    missing+=(libpcre2-dev)
  printf '#include <zlib.h>\n' | "${CC:-gcc}" -E -o /dev/null - 2>/dev/null || missing+=(zlib1g-dev)
  command -v make >/dev/null || missing+=(make)
  [ ${#missing[@]} -eq 0 ] || fail "expected make and the headers of OpenSSL, PCRE2 and zlib; missing: apt-get install ${missing[*]}"
}

# apt with a list, an index and a cache of its own.
apt() {
  apt-get -q -o "Dir::Etc::sourcelist=$work/sources.list" -o "Dir::Etc::sourceparts=$work/none" \
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User=" "$@"
}

update() {
  local mirror=${DEBIAN_MIRROR:-}
  if [ -z "$mirror" ]; then
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 2>/dev/null |
      sed -n 's|^Debian \(.*/debian/\)$|\1|p' | head -n 1)
  fi
  [ -n "$mirror" ] || fail "expected the address of a Debian mirror in DEBIAN_MIRROR, found none in this machine's apt either"
  [ -e "$keyring" ] || fail "expected Debian's keys in $keyring: apt-get install debian-archive-keyring"
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/none"
  echo "deb-src [signed-by=$keyring] $mirror $release main" >"$work/sources.list"
  apt update
}

# fetch NAME VERSION: unpacks the upstream archive into $work/NAME. Prints nothing.
fetch() {
  local archive
  mkdir -p "$work/nginx-root/logs"
  (cd "$work" && rm -f "$1"_*.orig.tar.* && apt source --download-only --tar-only "$1" >/dev/null)
  archive=$(ls "$work/$1"_"$2".*.orig.tar.* 2>/dev/null) ||
    fail "expected $1 $2 in $release, found $(ls "$work" | grep "^$1_" || echo nothing)"
  rm -rf "${work:?}/$1"
  mkdir "$work/$1"
  tar -xf "$archive" -C "$work/$1" --strip-components 1
}

build_nginx() {
  fetch nginx "$nginx_version"
  # With the optimisation and the modules of the distribution's package that a comparison uses.
  (cd "$work/nginx" &&
    ./configure --prefix="$work/nginx-root" --with-cc="${CC:-gcc}" --with-cc-opt=-O2 --with-threads --with-file-aio \
      --with-pcre-jit --with-http_ssl_module --with-http_v2_module --with-http_realip_module --with-http_stub_status_module \
      --with-http_auth_request_module --with-stream --with-stream_ssl_module --with-stream_ssl_preread_module >configure.log &&
    make -s -j"$(nproc)" >make.log)
  install "$work/nginx/objs/nginx" "$bin/nginx"
  "$bin/nginx" -v
}

build_haproxy() {
  fetch haproxy "$haproxy_version"
  (cd "$work/haproxy" &&
    make -s -j"$(nproc)" CC="${CC:-gcc}" TARGET=linux-glibc USE_OPENSSL=1 USE_PCRE2=1 USE_PCRE2_JIT=1 USE_ZLIB=1 >make.log)
  install "$work/haproxy/haproxy" "$bin/haproxy"
  "$bin/haproxy" -v | head -n 1
}

[ $# -gt 0 ] || set -- nginx haproxy
for name in "$@"; do
  case $name in
    nginx | haproxy) ;;
    *) echo "peers.sh: expected nginx, haproxy or both, found \"$name\"" >&2; exit 2 ;;
  esac
done
mkdir -p "$bin" "$work"
require_headers
update
for name in "$@"; do
  ("build_$name")
done
