#!/bin/sh
# Makes the certificates of shop.yaml, for trying it out: none of them is to be trusted by anybody.
set -eu
cd "$(dirname "$0")"
# Keys are for their owner alone.
umask 077
make() { # NAME HOSTS
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
        -subj "/CN=$1" -addext "subjectAltName=$2" -keyout "$1.key" -out "$1.crt" 2>/dev/null
}
sign() { # AUTHORITY NAME HOSTS
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" -keyout "$2.key" -out "$2.csr" 2>/dev/null
    printf 'basicConstraints=CA:FALSE\nsubjectAltName=%s\n' "$3" >"$2.ext"
    openssl x509 -req -in "$2.csr" -CA "$1.crt" -CAkey "$1.key" -CAcreateserial -days 30 -extfile "$2.ext" -out "$2.crt" 2>/dev/null
    rm "$2.csr" "$2.ext"
}
make shop DNS:shop.example,DNS:www.shop.example
make wildcard 'DNS:*.shop.example'
make gateway DNS:gateway.shop.example
make staff-ca DNS:staff.shop.example
make internal-ca DNS:internal
# Of whom the gateway knows the authority alone: one of the staff, and the payment service.
sign staff-ca member DNS:member.staff.shop.example
sign internal-ca payment DNS:payment.internal
# Nobody's business but the mail server's: its TLS passes through.
make mail DNS:mail.shop.example
