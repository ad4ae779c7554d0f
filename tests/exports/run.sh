#!/bin/bash
# What `ringmain tune export` prints, read by those for whom it is made:
#
#   tests/exports/run.sh target/release/ringmain
#
# systemd checks the unit (systemd-analyze verify), procps the sysctls (sysctl --dry-run), Kubernetes' and the container runtimes' own types the
# DaemonSet and the seccomp profile.
#
# Exit code: 0 all are right, 1 one is not, 2 could not be run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ne 1 ]; then
    sed -n '2,5p' "$0" >&2
    exit 2
fi
ringmain=$(realpath "$1")
for tool in systemd-analyze sysctl go; do
    command -v "$tool" >/dev/null || { echo "exports: expected $tool, found none (on Debian: systemd, procps, golang-go)" >&2; exit 2; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
(cd "$here" && go build -o "$folder/exports" .)

"$ringmain" tune export --as seccomp > "$folder/seccomp"
"$ringmain" tune export --as systemd > "$folder/ringmain-tune.service"
# What the golden tests hold for a host with sixteen queues.
fixtures=$here/../../crates/tune/fixtures

wrong=0
check() {
    local what=$1
    shift
    if "$@" > "$folder/said" 2>&1; then
        echo "$what: right"
    else
        echo "$what: wrong"
        sed 's/^/    /' "$folder/said"
        wrong=1
    fi
}
# systemd asks whether there is such a program.
mkdir "$folder/sixteen"
sed "s|^\(Exec[A-Za-z]*\)=[^ ]*|\1=$ringmain|" "$fixtures/ena16.service" > "$folder/sixteen/ringmain-tune.service"
check "the unit of this host, by systemd" systemd-analyze verify --man=no "$folder/ringmain-tune.service"
check "the unit for sixteen queues, by systemd" systemd-analyze verify --man=no "$folder/sixteen/ringmain-tune.service"
check "the sysctls, by procps" sysctl --dry-run --load="$fixtures/ena16.sysctl.conf"
check "the DaemonSet, by Kubernetes' types" "$folder/exports" daemonset "$fixtures/ena16.daemonset.yaml"
check "the seccomp profile, by the runtimes' types" "$folder/exports" seccomp "$folder/seccomp"
exit $wrong
