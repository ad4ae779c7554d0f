#!/bin/bash
# The conformance suite of the Gateway API against a real API server: no test may fail or be skipped, in runs of at most 150 s.
#
#   RINGMAIN_KUBE_RIG=FOLDER tests/kube/conformance.sh BINARY [SCRIPT...]
#
# Each SCRIPT starts the gateway of one run; without any there are three runs, during the second of which the leader is killed. FOLDER has
# `conformance.sh`, `down.sh` and `expect/four-profiles.txt`, the names of the tests of these profiles.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
rig=${RINGMAIN_KUBE_RIG:?the folder of a rig with conformance.sh and down.sh}
RINGMAIN=$(realpath "${1:?the path of a ringmain binary with the feature kubernetes}")
shift
[ $# -gt 0 ] || set -- gateway.sh replicas.sh gateway.sh
export RINGMAIN RIG_NAME=${RIG_NAME:-ringmain-conformance-$$}
out=$(mktemp -d)
trap '"$rig/down.sh" >/dev/null; rm -rf "$out"' EXIT
for script in "$@"; do
	"$rig/conformance.sh" --gateway "$here/$script" --profiles GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP \
		--expect "$rig/expect/four-profiles.txt" --out "$out" | tee "$out/run.log"
	seconds=$(sed -nE 's/.*suite ended with [0-9]+ after ([0-9]+) s.*/\1/p' "$out/run.log")
	# Tests of other profiles are skipped; --expect has made sure that none of these was.
	if grep '^FAIL' "$out/results.tsv"; then
		echo "$script: a test has failed" >&2
		exit 1
	fi
	if [ "$seconds" -gt 150 ]; then
		echo "$script: $seconds s, more than 150" >&2
		exit 1
	fi
	grep '^replicas:' "$out/gateway.log" || true
	if [ "$script" = replicas.sh ] && ! grep -q '^replicas:.* second holds the Lease' "$out/gateway.log"; then
		echo "$script: the leader was not replaced during the run" >&2
		exit 1
	fi
	echo "ok $script ($(grep -c '^PASS' "$out/results.tsv") tests, $seconds s)"
done
