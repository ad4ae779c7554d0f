"""A bound on the CPU time of processes: a control group of their own, removed at the end.

Must not know whose processes they are. Works with both versions of control groups, and needs
the right to make one: root, on most systems.
"""

import contextlib
import os
import pathlib

ROOT = pathlib.Path("/sys/fs/cgroup")
# The least quota that the kernel takes, so the period is as short as it can be.
QUOTA_MICROSECONDS = 1000


class QuotaError(Exception):
    """No group could be made; the text says why and what to do."""


@contextlib.contextmanager
def cpu_share(pids, share):
    """Within the block the processes together use at most `share` (0.001 to 1) of one CPU."""
    period = round(QUOTA_MICROSECONDS / share)
    if (ROOT / "cgroup.controllers").exists():
        parent, settings = ROOT, {"cpu.max": f"{QUOTA_MICROSECONDS} {period}"}
    else:
        parent, settings = ROOT / "cpu", {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(QUOTA_MICROSECONDS)}
    group = parent / f"ringmain-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as e:
        raise QuotaError(f"cannot limit the server's CPU: {e}: run as root, or without a limit by --share 1") from e
    try:
        try:
            for name, value in settings.items():
                (group / name).write_text(value)
            for pid in pids:
                (group / "cgroup.procs").write_text(str(pid))
        except OSError as e:
            raise QuotaError(f"cannot limit the server's CPU: {e}: is the cpu controller on in {parent}?"
                             " Or run without a limit by --share 1") from e
        yield
    finally:
        # A group with processes cannot be removed; they go back to where most of them came from.
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (parent / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            group.rmdir()
