#!/bin/sh
# Makes the certificates of shop.yaml, for trying it out: none of them is to be trusted by anybody.
set -eu
cd "$(dirname "$0")"
make() { # NAME HOSTS
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
        -subj "/CN=$1" -addext "subjectAltName=$2" -keyout "$1.key" -out "$1.crt" 2>/dev/null
}
make shop DNS:shop.example,DNS:www.shop.example
make wildcard 'DNS:*.shop.example'
make gateway DNS:gateway.shop.example
make staff-ca DNS:staff.shop.example
make internal-ca DNS:payment.internal
