# Ringmain as the gateway of a rig: RINGMAIN=PATH conformance.sh --gateway tests/kube/gateway.sh
# channel: standard
. "$(dirname "$(realpath "$0")")/common.sh"
exec "$RINGMAIN" run ringmain.yaml
