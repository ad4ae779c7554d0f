"""A11: `ringmain tune` does not believe a state directory that another user could have written."""

import json
import os

import rig
from run import case


def journal(key):
    records = [
        {"begin": {"version": 1, "boot": boot(), "network": os.readlink("/proc/self/ns/net")}},
        {"intend": {"serial": 0, "step": "backlogs", "key": key, "before": "128", "wanted": "128"}},
    ]
    return "".join(json.dumps(record) + "\n" for record in records)


def boot():
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def need_root():
    if os.geteuid() != 0:
        raise rig.Skipped("needs root, to make files of another user")


@case("A11", "a journal of another user is refused")
def other_user(r):
    need_root()
    state = r.dir / "state"
    state.mkdir(mode=0o700)
    r.file("state/journal", journal("/proc/sys/net/core/somaxconn"))
    os.chown(state / "journal", 65534, 65534)
    done = r.run("tune", "revert", "--state", state)
    rig.check(done.returncode != 0 and "not trusted" in done.stderr, f"{done.returncode}: {done.stdout}{done.stderr}")


@case("A11", "a journal cannot lead to files outside of the catalogue's settings")
def foreign_key(r):
    victim = r.file("victim", "untouched\n")
    state = r.dir / "state"
    state.mkdir(mode=0o700)
    os.chmod(r.file("state/journal", journal(f"/proc/self/root{victim}")), 0o600)
    done = r.run("tune", "revert", "--force", "--state", state)
    rig.expect("the file", "untouched\n", victim.read_text())
    rig.check(done.returncode != 0 and "no step changes" in done.stderr, f"{done.returncode}: {done.stdout}{done.stderr}")


@case("A11", "`lock` and `journal.new` are not followed as symbolic links; the directory is 0700")
def links(r):
    victim = r.file("victim", "untouched\n")
    state = r.dir / "state"
    state.mkdir(mode=0o755)
    (state / "lock").symlink_to(victim)
    r.file("state/journal", journal("/proc/sys/net/core/somaxconn"))
    os.chmod(state / "journal", 0o600)
    done = r.run("tune", "revert", "--state", state)
    rig.check(done.returncode != 0 and "symbolic link" in done.stderr, f"{done.returncode}: {done.stdout}{done.stderr}")
    rig.expect("mode of the directory", 0o700, state.stat().st_mode & 0o7777)
