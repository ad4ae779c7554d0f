# Two replicas of Ringmain as the gateway of a rig; the one that holds the Lease is killed once it has written the statuses of ROUTES
# routes: RINGMAIN=PATH conformance.sh --gateway tests/kube/replicas.sh
# channel: standard
#
# Replicas serve the same addresses, as on hosts of their own: the one that is killed, which starts first, has a network of its own with a
# link to that of the rig. The other one is in the rig's, where requests of the suite arrive. Lines that begin with `replicas:` are the log.
. "$(dirname "$(realpath "$0")")/common.sh"
routes=${ROUTES:-60}
say() { echo "replicas: $(date -u +%T.%3N) $*"; }
holder() { kubectl get lease ringmain.dev-gateway -o 'jsonpath={.spec.holderIdentity}' 2>/dev/null || true; }
# until_holder NAME: waits until the Lease is that of the replica NAME.
until_holder() {
	until case $(holder) in "$1"_*) true ;; *) false ;; esac do sleep 0.2; done
	say "$1 holds the Lease"
}
end() {
	trap - EXIT TERM INT
	kill -KILL $first $second $watch 2>/dev/null || true
}
first='' second='' watch=''
trap end EXIT
trap 'end; exit 143' TERM INT

# The link's ends are made from within the new network; they disappear together with its last process.
POD_NAME=first unshare --net sh -euc '
	rig="nsenter --target $PPID --net ip"
	$rig link add first type veth peer name uplink netns $$
	$rig addr add 10.99.0.1/30 dev first
	$rig link set first up
	ip link set lo up
	ip addr add 10.99.0.2/30 dev uplink
	ip link set uplink up
	ip route add default via 10.99.0.1
	ip route add local "$1" dev lo
	exec "$2" run ringmain.yaml' sh "$POOL" "$RINGMAIN" &
first=$!
until_holder first
POD_NAME=second "$RINGMAIN" run ringmain.yaml &
second=$!

# One line for each version of a route: its name, and the controllers of its status.
line='{.metadata.namespace}/{.metadata.name} {.status.parents[*].controllerName}{"\n"}'
mkfifo routes.$$
kubectl get httproutes -A --watch -o "jsonpath=$line" >routes.$$ &
watch=$!
declare -A written=()
while [ ${#written[@]} -lt "$routes" ] && read -r route controllers; do
	case $controllers in *ringmain.dev/gateway*) written[$route]=1 ;; esac
done <routes.$$
rm routes.$$
kill $watch
[ ${#written[@]} -ge "$routes" ] || { say "the watch of routes has ended after ${#written[@]} of them"; exit 1; }
case $(holder) in first_*) ;; *) say "first does not hold the Lease"; exit 1 ;; esac
kill -KILL $first
say "first is killed, after the statuses of $routes routes"
until_holder second
wait $second
