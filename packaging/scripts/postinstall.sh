#!/bin/sh
# After the files are unpacked, for dpkg (`configure`) and rpm (1: installed, 2: upgraded).
set -e

if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers ringmain.conf
elif ! getent passwd ringmain >/dev/null; then
    useradd --system --user-group --home-dir /var/lib/ringmain --no-create-home --shell /usr/sbin/nologin ringmain
fi
# systemd creates it, too; `ringmain check` reports a missing folder before the first start.
install -d -o ringmain -g ringmain -m 0750 /var/log/ringmain
# It may contain secrets: the service reads it, other users do not.
chown root:ringmain /etc/ringmain /etc/ringmain/ringmain.yaml
chmod 0750 /etc/ringmain
chmod 0640 /etc/ringmain/ringmain.yaml

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # A running service gets the new program; the service is not started by the installation.
    systemctl try-restart ringmain.service || true
fi
