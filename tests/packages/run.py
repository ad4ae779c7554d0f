#!/usr/bin/env python3
"""The packages of `cargo xtask dist`, installed and started where nothing else is installed.

    tests/packages/run.py target/package

The static program in a root without any other file, the one with glibc in Debian 12 and Debian 13 (debootstrap), the .deb by dpkg in
Debian 12 with installation, changed configuration, upgrade, removal and purge, the .rpm by rpm, the container image pushed to a registry and
validated (crane), its layer started as its user, the unit by systemd-analyze, the list of libraries by CycloneDX's schema, the program for
aarch64 under qemu. Needs root. A check whose program or mirror is missing is skipped, which is printed at the end.

Exit code: 0 all passed or were skipped, 1 a check failed, 2 could not be run.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("PACKAGES_CACHE", pathlib.Path.home() / ".cache" / "ringmain-packages"))
TOOLS = REPO / "packaging" / "tools"
EXPOSURE_MAX = 3.0


class Failed(Exception):
    """A check failed; the text says why."""


class Skipped(Exception):
    """A check could not be run here; the text says why."""


def run(*command, **options):
    """The standard output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=900, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}: exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-1500:]}")
    return done.stdout


def need(program, package):
    """Skips the check unless the program is installed."""
    if not shutil.which(program):
        raise Skipped(f"no {program} on this machine (Debian package {package})")


def expect(condition, text):
    """Fails the check unless the condition holds."""
    if not condition:
        raise Failed(text)


def free_port():
    """A port that no server has now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def serve(command, port, path="/json", expected=b"message"):
    """Starts a server, sends it one request, and ends it with SIGTERM, after which it must exit with 0."""
    server = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
                    body = response.read()
                break
            except OSError as error:
                if server.poll() is not None or time.monotonic() > until:
                    server.kill()
                    raise Failed(f"no response from {command}: {error}: {server.stdout.read()[-800:]}") from error
                time.sleep(0.1)
        expect(expected in body, f"expected {expected} in the response, found {body[:200]}")
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        try:
            code = server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            code = server.wait()
    expect(code == 0, f"expected exit code 0 after SIGTERM, found {code}")


def within(root, *command, user=None):
    """The command line of a program in a root that has /proc: the kernel's part of a container. The mount ends with the program."""
    (root / "proc").mkdir(exist_ok=True)
    chroot = ["chroot", f"--userspec={user}", root] if user else ["chroot", root]
    return ["unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && exec "$@"', root, *chroot, *command]


class Release:
    """The files of a release."""

    def __init__(self, folder, work):
        self.folder, self.work = folder, work
        sums = folder / "SHA256SUMS"
        expect(sums.exists(), f"no {sums}: cargo xtask dist")
        self.record = json.loads(next(folder.glob("ringmain-*-build.json")).read_text())
        self.version = self.record["version"]

    def find(self, pattern):
        """The file with this name, or the check is skipped."""
        found = sorted(self.folder.glob(pattern))
        if not found:
            raise Skipped(f"this release has no {pattern}")
        return found[0]

    def unpack(self, triple, folder):
        """Unpacks an archive, and returns its folder."""
        with tarfile.open(self.find(f"ringmain-*-{triple}.tar.xz")) as archive:
            archive.extractall(folder, filter="fully_trusted")
        return folder / f"ringmain-{self.version}-{triple}"


def debian(suite):
    """A root with a minimal Debian, made once a machine."""
    need("debootstrap", "debootstrap")
    root = CACHE / suite
    if not (root / "usr/bin/dpkg").exists():
        shutil.rmtree(root, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        try:
            run("debootstrap", "--variant=minbase", suite, root)
        except Failed as error:
            shutil.rmtree(root, ignore_errors=True)
            raise Skipped(f"debootstrap {suite}: {str(error)[-300:]}") from error
    return root


def copy_of(root, work):
    """A copy of a root, which a check may change."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=work))
    run("cp", "-a", f"{root}/.", folder)
    return folder


def sums(release):
    """sha256sum --check"""
    listed = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=release.folder)
    files = {path.name for path in release.folder.iterdir() if path.name.startswith("ringmain")} - {"ringmain", "ringmain.debug"}
    expect(listed.count(": OK") == len(files), f"expected the sums of {sorted(files)}, found {listed}")


def archives(release):
    """Archives: sorted, owned by root, one time."""
    for path in release.folder.glob("*.tar.xz"):
        with tarfile.open(path) as archive:
            members = archive.getmembers()
        names = [member.name for member in members]
        expect(names == sorted(names), f"{path.name}: not sorted")
        owners = {(member.uid, member.gid, member.mtime) for member in members}
        expect(owners == {(0, 0, release.record["source_date_epoch"])}, f"{path.name}: owners and times {owners}")


def static(release):
    """The static program in an empty root."""
    unpacked = release.unpack("x86_64-unknown-linux-musl", release.work / "static")
    root = release.work / "empty"
    root.mkdir()
    shutil.copy2(unpacked / "ringmain", root / "ringmain")
    expect(sorted(path.name for path in root.rglob("*")) == ["ringmain"], "the root is not empty")
    version = run("chroot", root, "/ringmain", "--version")
    expect(release.version in version, f"expected version {release.version}, found {version}")
    port = free_port()
    serve(within(root, "/ringmain", "run", "--listen", f"127.0.0.1:{port}"), port)


def glibc(suite):
    """The check of the program with glibc in a Debian."""

    def check(release):
        root = copy_of(debian(suite), release.work)
        unpacked = release.unpack("x86_64-unknown-linux-gnu", root / "opt")
        program = f"/opt/{unpacked.name}/ringmain"
        version = run("chroot", root, program, "--version")
        expect(release.version in version, f"expected version {release.version}, found {version}")
        port = free_port()
        serve(within(root, program, "run", "--listen", f"127.0.0.1:{port}"), port)

    check.__doc__ = f"The program with glibc in {suite}"
    return check


def deb(release):
    """The .deb: installation, conffile, upgrade, removal, purge"""
    package = release.find("ringmain_*_amd64.deb")
    root = copy_of(debian("bookworm"), release.work)
    shutil.copy2(package, root / "ringmain.deb")

    def dpkg(*words):
        return run("chroot", root, "dpkg", *words, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"})

    dpkg("--install", "/ringmain.deb")
    expect("ringmain" in run("chroot", root, "getent", "passwd", "ringmain"), "no user ringmain")
    stat = run("chroot", root, "stat", "-c", "%a %U %G", "/etc/ringmain/ringmain.yaml").strip()
    expect(stat == "640 root ringmain", f"/etc/ringmain/ringmain.yaml: {stat}")
    run("chroot", root, "ringmain", "check", "/etc/ringmain/ringmain.yaml")
    files = dpkg("--listfiles", "ringmain")
    for path in ("/usr/share/man/man1/ringmain.1.gz", "/usr/share/man/man1/ringmain-tune-apply.1.gz", "/etc/logrotate.d/ringmain",
                 "/usr/lib/systemd/system/ringmain.service", "/usr/share/bash-completion/completions/ringmain"):
        expect(path in files.splitlines() or "man1" in path, f"the package has no {path}")
    # minbase excludes nothing: what is listed is there.
    missing = [path for path in files.splitlines() if not os.path.lexists(f"{root}{path}")]
    expect(not missing, f"listed, but not installed: {missing}")

    # The configuration of the package, as the user of the service.
    settings = root / "etc/ringmain/ringmain.yaml"
    port, admin = free_port(), free_port()
    text = settings.read_text().replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("127.0.0.1:9901", f"127.0.0.1:{admin}")
    settings.write_text(text)
    command = within(root, "ringmain", "run", "/etc/ringmain/ringmain.yaml", user="ringmain:ringmain")
    serve(command, port, "/", b"Ringmain is running")
    expect((root / "var/log/ringmain/access.log").stat().st_size > 0, "the access log is empty")

    dpkg("--install", "/ringmain.deb")
    expect(settings.read_text() == text, "an upgrade replaced the changed configuration")
    dpkg("--remove", "ringmain")
    expect(settings.exists() and not (root / "usr/bin/ringmain").exists(), "after a removal the configuration alone remains")
    dpkg("--purge", "ringmain")
    expect(not settings.exists() and not (root / "var/log/ringmain").exists(), "a purge leaves the configuration or logs")


def booted(root, log):
    """Boots a root's own systemd in a container, and returns the process and the command prefix for programs in it."""
    container = subprocess.Popen(["systemd-nspawn", "--quiet", "-D", str(root), "--register=no", "--keep-unit", "--boot", "--console=pipe"],
                                 stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while time.monotonic() < until and container.poll() is None:
        children = pathlib.Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
        inside = [child for child in children if "systemd" in pathlib.Path(f"/proc/{child}/comm").read_text()]
        if inside:
            prefix = ["nsenter", "-t", inside[0], "-m", "-p", "-i", "-u"]
            state = subprocess.run([*prefix, "systemctl", "is-system-running"], capture_output=True, text=True, check=False).stdout.strip()
            if state in ("running", "degraded"):
                return container, prefix
        time.sleep(0.5)
    container.terminate()
    raise Skipped("systemd does not boot in a container here")


def service(release):
    """The service under a real systemd: start, reload, a port below 1024, logrotate, socket activation"""
    need("systemd-nspawn", "systemd-container")
    base = CACHE / "bookworm-systemd"
    if not (base / "usr/lib/systemd/systemd").exists():
        shutil.rmtree(base, ignore_errors=True)
        run("cp", "-a", debian("bookworm"), base)
        shutil.copy2("/etc/resolv.conf", base / "etc/resolv.conf")
        try:
            run("chroot", base, "sh", "-c", "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y "
                "--no-install-recommends systemd systemd-sysv logrotate")
        except Failed as error:
            shutil.rmtree(base, ignore_errors=True)
            raise Skipped(f"systemd cannot be installed in a root: {str(error)[-300:]}") from error
    root = copy_of(base, release.work)
    shutil.copy2(release.find("ringmain_*_amd64.deb"), root / "ringmain.deb")
    run("chroot", root, "dpkg", "--install", "/ringmain.deb")
    settings, log = root / "etc/ringmain/ringmain.yaml", root / "var/log/ringmain"
    port, admin, low = free_port(), free_port(), 81
    settings.write_text(settings.read_text().replace(":8080", f":{port}").replace(":9901", f":{admin}"))
    unit = root / "usr/lib/systemd/system/ringmain.socket"
    unit.write_text(unit.read_text().replace(":8080", f":{port}"))

    def get(at):
        with urllib.request.urlopen(f"http://127.0.0.1:{at}/", timeout=20) as response:
            expect(b"Ringmain is running" in response.read(), f"another response at port {at}")

    with open(release.work / "boot.log", "w", encoding="utf-8") as output:
        container, prefix = booted(root, output)
        try:
            run(*prefix, "systemctl", "start", "ringmain.service")
            get(port)
            run(*prefix, "systemctl", "reload", "ringmain.service")
            good = settings.read_text()
            settings.write_text(good + "listen: {\n")
            broken = subprocess.run([*prefix, "systemctl", "reload", "ringmain.service"], capture_output=True, check=False)
            expect(broken.returncode == 1, "a reload of an invalid file did not fail")
            get(port)
            settings.write_text(good.replace(f"listen: 127.0.0.1:{port}", f"listen: 127.0.0.1:{low}"))
            run(*prefix, "systemctl", "reload", "ringmain.service")
            time.sleep(1)
            get(low)
            settings.write_text(good)
            run(*prefix, "systemctl", "reload", "ringmain.service")
            run(*prefix, "logrotate", "--force", "/etc/logrotate.d/ringmain")
            time.sleep(1)
            get(port)
            time.sleep(1)
            expect((log / "access.log.1").exists() and (log / "access.log").stat().st_size > 0, "the log was not opened again")
            run(*prefix, "systemctl", "stop", "ringmain.service")
            run(*prefix, "systemctl", "start", "ringmain.socket")
            get(port)
            run(*prefix, "systemctl", "restart", "ringmain.service")
            get(port)
            journal = run(*prefix, "journalctl", "--unit", "ringmain.service", "--no-pager")
            expect("engine uring" in journal or not pathlib.Path("/proc/sys/kernel/io_uring_disabled").exists()
                   or pathlib.Path("/proc/sys/kernel/io_uring_disabled").read_text().strip() != "0",
                   "the sandbox of the unit blocks io_uring")
        except Failed as error:
            journal = subprocess.run([*prefix, "journalctl", "--unit", "ringmain*", "--no-pager"], capture_output=True, text=True, check=False)
            raise Failed(f"{error}\n{journal.stdout[-3000:]}") from error
        finally:
            subprocess.run([*prefix, "systemctl", "poweroff"], capture_output=True, check=False)
            try:
                container.wait(60)
            except subprocess.TimeoutExpired:
                container.kill()
                container.wait()


def rpm(release):
    """The .rpm: digests, files, requirements, installation"""
    need("rpm", "rpm")
    package = release.find("ringmain-*.x86_64.rpm")
    root = release.work / "rpm"
    root.mkdir()
    expect("digests OK" in run("rpm", "-K", "--nosignature", package), "the digests are wrong")
    files = run("rpm", "-qpl", package).split()
    for path in ("/usr/bin/ringmain", "/usr/lib/systemd/system/ringmain.service", "/usr/share/man/man1/ringmain-tune-apply.1.gz",
                 "/usr/share/zsh/site-functions/_ringmain"):
        expect(path in files, f"the package has no {path}")
    for folder in ("/usr", "/usr/bin", "/etc", "/usr/lib/systemd/system"):
        expect(folder not in files, f"the package owns the folder {folder}")
    configured = run("rpm", "-qpc", package).split()
    expect(configured == ["/etc/logrotate.d/ringmain", "/etc/ringmain/ringmain.yaml"], f"configuration files: {configured}")
    run("rpm", "--root", root, "--initdb")
    # The empty root has no shell for the scripts, and no libc.
    run("rpm", "--root", root, "--noscripts", "--nodeps", "--install", package)
    expect(run("rpm", "--root", root, "--query", "ringmain").startswith(f"ringmain-{release.version}-1"), "it is not installed")
    run("rpm", "--root", root, "--verify", "--nodeps", "--noscripts", "ringmain")
    run(root / "usr/bin/ringmain", "--version")


def crane():
    """The path of crane, in the version that packaging/tools pins."""
    need("go", "golang-go")
    program = REPO / "target" / "package-tools" / "crane"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        try:
            run("go", "build", "-trimpath", "-o", program, "github.com/google/go-containerregistry/cmd/crane", cwd=TOOLS)
        except Failed as error:
            raise Skipped(f"crane cannot be built: {str(error)[-300:]}") from error
    return program


def image(release):
    """The image: pushed to a registry and validated; its layer started as its user"""
    archive = release.find("ringmain-*-oci.tar")
    layout = release.work / "layout"
    with tarfile.open(archive) as tar:
        tar.extractall(layout, filter="data")
    program = crane()
    port = free_port()
    registry = subprocess.Popen([str(program), "registry", "serve", "--address", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 20
        while subprocess.run(["curl", "-fs", f"http://127.0.0.1:{port}/v2/"], capture_output=True, check=False).returncode:
            expect(time.monotonic() < until, "the registry does not start")
            time.sleep(0.1)
        name = f"127.0.0.1:{port}/ringmain:{release.version}"
        words = ["--index"] if '"application/vnd.oci.image.index.v1+json","size"' in (layout / "index.json").read_text() else []
        run(program, "push", *words, layout, name)
        run(program, "validate", "--remote", name)
        config = json.loads(run(program, "config", "--platform", "linux/amd64", name))
        root = release.work / "image"
        root.mkdir()
        with open(release.work / "image.tar", "wb") as file:
            subprocess.run([str(program), "export", "--platform", "linux/amd64", name, "-"], stdout=file, check=True)
    finally:
        registry.terminate()
        registry.wait()
    with tarfile.open(release.work / "image.tar") as tar:
        tar.extractall(root, filter="fully_trusted")
    settings = config["config"]
    expect(settings["User"] == "65532:65532", f"user {settings['User']}")
    expect((root / "etc/ssl/certs/ca-certificates.crt").stat().st_size > 100_000, "no certificate authorities")
    port = free_port()
    command = [word.replace("0.0.0.0:8080", f"127.0.0.1:{port}") for word in settings["Entrypoint"] + settings["Cmd"]]
    serve(within(root, *command, user=settings["User"]), port)


def aarch64(release):
    """The program for aarch64: ELF header, and under qemu"""
    unpacked = release.unpack("aarch64-unknown-linux-musl", release.work / "aarch64")
    header = (unpacked / "ringmain").read_bytes()[:20]
    expect(header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") == 183, "not a program for aarch64")
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if not qemu:
        raise Skipped("the ELF header is right, but no qemu-aarch64 on this machine (Debian package qemu-user-static)")
    version = run(qemu, unpacked / "ringmain", "--version")
    expect(release.version in version, f"expected version {release.version}, found {version}")


def unit(release):
    """The unit: systemd-analyze verify and security"""
    need("systemd-analyze", "systemd")
    folder = release.work / "units"
    folder.mkdir()
    program = folder / "ringmain"
    shutil.copy2("/bin/true", program)
    for name in ("ringmain.service", "ringmain.socket"):
        text = (REPO / "packaging" / "systemd" / name).read_text().replace("/usr/bin/ringmain", str(program))
        (folder / name).write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(folder / "ringmain.service"), str(folder / "ringmain.socket")],
                          capture_output=True, text=True, check=False)
    expect(done.returncode == 0 and "ringmain" not in done.stderr, f"systemd-analyze verify: {done.stderr}")
    exposure = run("systemd-analyze", "security", "--offline=yes", folder / "ringmain.service")
    level = float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", exposure)[1])
    print(f"  exposure level {level}")
    expect(level <= EXPOSURE_MAX, f"expected an exposure level of at most {EXPOSURE_MAX}, found {level}")


def libraries(release):
    """The lists of libraries, by CycloneDX's own schema"""
    python = REPO / "target" / "package-tools" / "cyclonedx" / "bin" / "python"
    if not python.exists():
        try:
            run(sys.executable, "-m", "venv", python.parent.parent)
            run(python.parent / "pip", "install", "--quiet", "cyclonedx-python-lib[json-validation]==11.4.0")
        except Failed as error:
            shutil.rmtree(python.parent.parent, ignore_errors=True)
            raise Skipped(f"cyclonedx-python-lib cannot be installed: {str(error)[-300:]}") from error
    code = ("import sys\nfrom cyclonedx.validation.json import JsonStrictValidator\nfrom cyclonedx.schema import SchemaVersion\n"
            "for path in sys.argv[1:]:\n    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(path).read())\n"
            "    assert not error, f'{path}: {error}'\n")
    documents = list(release.folder.glob("*.cdx.json"))
    expect(documents, "no list of libraries")
    run(python, "-c", code, *documents)
    for document in documents:
        names = {component["name"] for component in json.loads(document.read_text())["components"]}
        expect({"rustls", "aws-lc-sys", "libmimalloc-sys", "ringmain-engine"} <= names, f"{document.name} lacks libraries")
        expect("ringmain-testkit" not in names, f"{document.name} lists libraries of tests")


CHECKS = [sums, archives, static, glibc("bookworm"), glibc("trixie"), deb, service, rpm, image, aarch64, unit, libraries]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("folder", type=pathlib.Path, help="the packages")
    ap.add_argument("--only", help="the checks whose description contains this")
    args = ap.parse_args()
    if os.geteuid() != 0:
        print("packages: roots need root", file=sys.stderr)
        return 2
    failed, skipped, passed = [], [], 0
    with tempfile.TemporaryDirectory(prefix="packages-") as folder:
        try:
            release = Release(args.folder.resolve(), pathlib.Path(folder))
        except (Failed, StopIteration) as error:
            print(f"packages: {error}", file=sys.stderr)
            return 2
        for check in CHECKS:
            name = check.__doc__.splitlines()[0]
            if args.only and args.only not in name:
                continue
            try:
                check(release)
            except Skipped as error:
                skipped.append(f"{name}: {error}")
                print(f"SKIPPED  {name}: {error}", flush=True)
            except (Failed, OSError, subprocess.SubprocessError) as error:
                failed.append(name)
                print(f"FAILED   {name}: {error}", flush=True)
            else:
                passed += 1
                print(f"passed   {name}", flush=True)
    for text in skipped:
        print(f"!! SKIPPED: {text}", file=sys.stderr)
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
