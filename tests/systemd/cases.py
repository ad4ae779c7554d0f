"""Units of Type=notify under systemd's user manager: started by run.sh, in a mount namespace of its own."""

import os
import pathlib
import signal
import subprocess
import sys
import time

PROGRAM, WORK = sys.argv[1], pathlib.Path(sys.argv[2])
GUARD_SECONDS = 20
RUNTIME = pathlib.Path("/run/user-manager")
UNITS = WORK / "systemd/user"

CONFIG = "listen: unix:{socket}\nroutes: {{all: {{rules: [{{respond: {{body: '{version}'}}}}]}}}}\n"
UNIT = """\
[Service]
Type=notify
NotifyAccess=main
ExecStart={program} run {arguments}
ExecReload=/bin/kill -HUP $MAINPID
{more}
"""


def systemctl(*words, check=True):
    line = ["systemctl", "--user", "--no-pager", *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(line)}: {done.stderr}")
    return done.stdout.strip()


def show(unit, name):
    return systemctl("show", unit, f"--property={name}", "--value")


def until(what, read, wanted):
    end = time.monotonic() + GUARD_SECONDS
    found = read()
    while not wanted(found):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: found {found!r}")
        time.sleep(0.05)
        found = read()
    return found


def expect(what, wanted, found):
    if wanted != found:
        raise AssertionError(f"{what}: expected {wanted!r}, found {found!r}")


def service(name, arguments, more=""):
    (UNITS / f"{name}.service").write_text(UNIT.format(program=PROGRAM, arguments=arguments, more=more))
    systemctl("daemon-reload")
    systemctl("start", f"{name}.service")
    return f"{name}.service"


def get(socket):
    done = subprocess.run(["curl", "-s", "--max-time", "5", "--unix-socket", socket, "http://a/"], capture_output=True, text=True, check=False)
    return done.stdout


def gateway():
    """Start, reload by both ways, a file with an error, an upgrade, a stop."""
    socket, file = WORK / "gateway.sock", WORK / "gateway.yaml"
    file.write_text(CONFIG.format(socket=socket, version=1))
    unit = service("gateway", file)
    # `start` has returned, so that it serves.
    expect("the response", "1", get(socket))
    expect("state", "active", show(unit, "ActiveState"))
    expect("status", f"Listening on unix:{socket}", show(unit, "StatusText"))

    file.write_text(CONFIG.format(socket=socket, version=2))
    until("status after a change", lambda: show(unit, "StatusText"), lambda text: text.startswith("Configuration reloaded in "))
    expect("the response", "2", get(socket))
    systemctl("reload", unit)
    until("status after a reload", lambda: show(unit, "StatusText"), lambda text: text == "Configuration reloaded: unchanged")
    expect("state", "active", until("state", lambda: show(unit, "ActiveState"), lambda state: state == "active"))
    file.write_text("listen: 7\n")
    until("status after an error", lambda: show(unit, "StatusText"), lambda text: text.startswith("Keeping the previous configuration: "))
    file.write_text(CONFIG.format(socket=socket, version=3))
    until("the response", lambda: get(socket), lambda body: body == "3")

    old = show(unit, "MainPID")
    os.kill(int(old), signal.SIGUSR2)
    new = until("the main process", lambda: show(unit, "MainPID"), lambda pid: pid != old)
    until("the old process has ended", lambda: os.path.exists(f"/proc/{old}"), lambda exists: not exists)
    until("status of the new process", lambda: show(unit, "StatusText"), lambda text: text == f"Listening on unix:{socket}")
    expect("state after the upgrade", ("active", "running"), (show(unit, "ActiveState"), show(unit, "SubState")))
    expect("the response", "3", get(socket))
    systemctl("reload", unit)
    until("status after a reload of the new process", lambda: show(unit, "StatusText"), lambda text: text == "Configuration reloaded: unchanged")
    systemctl("stop", unit)
    until("the new process has ended", lambda: os.path.exists(f"/proc/{new}"), lambda exists: not exists)
    # With cgroup v1 in a container, systemd does not wait for a main process that it has not started itself, and kills it at once.
    if pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
        expect("result", ("inactive", "success"), (show(unit, "ActiveState"), show(unit, "Result")))


def watchdog():
    """Pings keep it alive, also after an upgrade; a process that does not turn is killed and started again."""
    unit = service("watched", f"--echo --listen unix:{WORK}/echo.sock", "WatchdogSec=1s\nRestart=on-failure\nRestartSec=100ms")
    first = show(unit, "MainPID")
    os.kill(int(first), signal.SIGUSR2)
    second = until("the main process", lambda: show(unit, "MainPID"), lambda pid: pid != first)
    time.sleep(3)
    expect("the main process after three times the watchdog's time", second, show(unit, "MainPID"))
    expect("restarts", "0", show(unit, "NRestarts"))
    os.kill(int(second), signal.SIGSTOP)
    until("restarts", lambda: show(unit, "NRestarts"), lambda count: count == "1")
    until("state", lambda: show(unit, "ActiveState"), lambda state: state == "active")
    systemctl("stop", unit)


def sockets():
    """Sockets of a unit are served by a file and by the built-in application, and stay when the service stops."""
    for name, arguments in (("file", WORK / "activated.yaml"), ("plain", "-q")):
        path = WORK / f"{name}.sock"
        (WORK / "activated.yaml").write_text(CONFIG.format(socket=path, version="by socket"))
        (UNITS / f"activated-{name}.socket").write_text(f"[Socket]\nListenStream={path}\nFileDescriptorName=web\n")
        text = UNIT.format(program=PROGRAM, arguments=arguments, more="")
        (UNITS / f"activated-{name}.service").write_text(text)
        systemctl("daemon-reload")
        systemctl("start", f"activated-{name}.socket")
        expect("state before the first connection", "inactive", show(f"activated-{name}.service", "ActiveState"))
        body = get(path)
        if not (body == "by socket" if name == "file" else "/healthz" in body):
            raise AssertionError(f"{name}: {body!r}")
        systemctl("stop", f"activated-{name}.service")
        expect("the socket", True, path.exists())
        # A connection starts it again.
        body = get(path)
        expect("state", "active", show(f"activated-{name}.service", "ActiveState"))
        systemctl("stop", f"activated-{name}.socket", f"activated-{name}.service")


def main():
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    os.makedirs("/run/systemd/system")
    RUNTIME.mkdir(mode=0o700)
    UNITS.mkdir(parents=True)
    (UNITS / "idle.target").write_text("[Unit]\nDescription=Nothing\n")
    os.environ.update(XDG_RUNTIME_DIR=str(RUNTIME), XDG_CONFIG_HOME=str(WORK))
    log = open(WORK / "log", "w+")
    command = ["/usr/lib/systemd/systemd", "--user", "--unit=idle.target", "--log-target=console"]
    manager = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until("the manager", lambda: systemctl("is-active", "idle.target", check=False), lambda state: state == "active")
        for case in (gateway, watchdog, sockets):
            case()
            print(f"ok: {case.__name__}", flush=True)
    except BaseException:
        log.seek(0)
        print(log.read()[-4000:], file=sys.stderr)
        raise
    finally:
        systemctl("exit", check=False)
        try:
            manager.wait(GUARD_SECONDS)
        except subprocess.TimeoutExpired:
            manager.kill()


main()
