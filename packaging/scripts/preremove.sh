#!/bin/sh
# Before the files are removed, for dpkg (`remove`) and rpm (0: removed, 1: upgraded).
set -e

case "${1:-}" in
remove | 0)
    if [ -d /run/systemd/system ]; then
        systemctl disable --now ringmain.socket ringmain.service 2>/dev/null || true
    fi
    ;;
esac
