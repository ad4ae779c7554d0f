#!/bin/sh
# A real systemd (its user manager, in a mount namespace with a /run of its own) runs `ringmain run` as Type=notify:
# start, reload, upgrade, watchdog, socket activation, stop. Usage: run.sh PROGRAM
#
# Needs root and systemd with systemctl; no system that systemd has booted.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
timeout 180 unshare --mount --propagation private python3 "$here/cases.py" "$program" "$work"
