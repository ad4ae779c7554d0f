#!/bin/sh
# After the files are removed, for dpkg (`remove`, `purge`) and rpm (0: removed, 1: upgraded).
set -e

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
# The logs remain after a removal; a purge deletes them. The user remains: files elsewhere may belong to it.
if [ "${1:-}" = purge ]; then
    rm -rf /var/log/ringmain /var/lib/ringmain
    rmdir --ignore-fail-on-non-empty /etc/ringmain 2>/dev/null || true
fi
