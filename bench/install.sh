#!/usr/bin/env bash
# Installs what the suites need of others, on Debian and Ubuntu: `bench/install.sh PART...`.
#
#   https     openssl and nginx, which tls.py and ws.py compare with
#   tls       testssl.sh, openssl and curl, which tls_tools.py runs
#   shop      nginx, Node.js, openssl, which shop.py and reload.py run; and Go 1.25 or newer, which is only looked for
#   proxy     nginx, HAProxy and h2o, which proxy.py compares with
#   browser   Chromium, Node.js, npm, and Playwright into bench/browser, as its lock file says
#   tutorials curl, openssl, sqlite3, nats-server, Prometheus and Chromium, which the five tutorials use
#
# What is there already is left as it is. As root, or by sudo. nginx is kept from starting.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

root=()
if [ "$(id -u)" -ne 0 ]; then root=(sudo); fi

updated=no
# need COMMAND PACKAGE: installs the package unless the command is there.
need() {
  if PATH=$PATH:/usr/sbin command -v "$1" >/dev/null; then
    return
  fi
  if [ "$updated" = no ]; then
    "${root[@]}" apt-get update -q
    updated=yes
  fi
  echo "apt-get install $2 (no $1 here)"
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -q -y --no-install-recommends "$2"
}

# As its documentation has it: while this file says so, no package starts its service.
no_services() {
  local policy=/usr/sbin/policy-rc.d
  if [ -e "$policy" ]; then
    return
  fi
  printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$policy" >/dev/null
  "${root[@]}" chmod 755 "$policy"
  # shellcheck disable=SC2064
  trap "${root[*]} rm -f $policy" EXIT
}

install_https() {
  need openssl openssl
  no_services
  need nginx nginx-light
}

install_tls() {
  need testssl testssl.sh
  need openssl openssl
  need curl curl
}

install_shop() {
  need openssl openssl
  need node nodejs
  no_services
  need nginx nginx-light
  if ! command -v go >/dev/null; then
    echo "install.sh: no go here: see https://go.dev/doc/install" >&2
    exit 1
  fi
}

install_proxy() {
  no_services
  need nginx nginx-light
  need haproxy haproxy
  need h2o h2o
}

install_tutorials() {
  need curl curl
  need openssl openssl
  need sqlite3 sqlite3
  need chromium chromium
  no_services
  need nats-server nats-server
  need prometheus prometheus
}

install_browser() {
  need chromium chromium
  need openssl openssl
  need node nodejs
  need npm npm
  npm ci --prefix "$here/browser" --no-audit --no-fund
}

[ $# -gt 0 ] || { echo "install.sh: expected some of https, tls, shop, proxy, tutorials and browser" >&2; exit 2; }
for part in "$@"; do
  case $part in
    https | tls | shop | proxy | tutorials | browser) "install_$part" ;;
    *) echo "install.sh: expected some of https, tls, shop, proxy, tutorials and browser, found \"$part\"" >&2; exit 2 ;;
  esac
done
