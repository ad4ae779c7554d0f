# What the scripts of gateways share, to be sourced within a rig: a ServiceAccount with the rights of tests/kube/rights.yaml, which are all
# that Ringmain needs; KUBECONFIG with its token (the administrator's only sets these up); a configuration, ringmain.yaml.
# Every Gateway has an address of its own out of POOL, which must lead to this host.
set -eu
here=$(dirname "$(realpath "$0")")
: "${RINGMAIN:?the path of a ringmain binary with the feature kubernetes}"
: "${POOL:=10.97.0.0/16}"
namespace=ringmain
kubectl create namespace "$namespace" --dry-run=client -o yaml | kubectl apply -f -
kubectl apply -n "$namespace" -f "$here/rights.yaml"
token=$(kubectl create token -n "$namespace" ringmain --duration 24h)
# The same cluster, another user.
kubectl config view --raw --minify >ringmain.kubeconfig
export KUBECONFIG=$PWD/ringmain.kubeconfig
for user in $(kubectl config get-users | tail -n +2); do kubectl config delete-user "$user" >/dev/null; done
kubectl config set-credentials ringmain --token "$token" >/dev/null
kubectl config set-context --current --user ringmain --namespace "$namespace" >/dev/null
cat >ringmain.yaml <<CONFIG
kubernetes:
  addresses:
    pool: $POOL
admin:
  address: 127.0.0.1:${ADMIN_PORT:-9901}
CONFIG
