//! The CPU quota and the memory limit of the control groups that this process is in.
//!
//! A group's limit holds for all groups below it, so each level up to the mount counts. Inside a
//! container the groups above the mount cannot be seen; then the mount itself is the container's group.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

/// A memory limit of version 1 from which on there is none: the kernel writes the largest multiple of its page size.
const NO_MEMORY_LIMIT: u64 = 1 << 62;

/// Returns the smallest CPU quota in CPUs, read from a file system that begins at `root`.
pub(crate) fn cpu_quota_under(root: &Path) -> Option<f64> {
    smallest(root, "cpu", read_cpu_quota, f64::total_cmp)
}

/// Returns the smallest memory limit in bytes, read from a file system that begins at `root`.
pub(crate) fn memory_limit_under(root: &Path) -> Option<u64> {
    smallest(root, "memory", read_memory_limit, u64::cmp)
}

/// Returns the memory limit of this process's control groups in bytes: beyond it the kernel ends a process of the group. `None`: no limit.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    memory_limit_under(Path::new("/"))
}

fn smallest<T>(
    root: &Path,
    controller: &str,
    read: fn(Version, &Path) -> Option<T>,
    compare: fn(&T, &T) -> Ordering,
) -> Option<T> {
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    mounts
        .lines()
        .filter_map(|line| Mount::parse(line, controller))
        .flat_map(|mount| mount.levels(root, &groups))
        .filter_map(|(version, level)| read(version, &level))
        .min_by(compare)
}

fn read_cpu_quota(version: Version, group: &Path) -> Option<f64> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    match version {
        Version::Two => {
            let text = read("cpu.max")?;
            let (quota, period) = text.trim().split_once(' ')?;
            ratio(quota, period)
        }
        Version::One => ratio(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?),
    }
}

fn read_memory_limit(version: Version, group: &Path) -> Option<u64> {
    let name = match version {
        Version::Two => "memory.max",
        Version::One => "memory.limit_in_bytes",
    };
    let text = fs::read_to_string(group.join(name)).ok()?;
    text.trim().parse().ok().filter(|bytes| *bytes < NO_MEMORY_LIMIT)
}

/// A mounted hierarchy that can hold a limit.
struct Mount<'a> {
    /// The group that is seen at the mount point.
    group: &'a Path,
    point: &'a Path,
    version: Version,
    controller: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl<'a> Mount<'a> {
    /// Parses a line of proc_pid_mountinfo(5), if it is such a hierarchy.
    fn parse(line: &'a str, controller: &'a str) -> Option<Mount<'a>> {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (group, point) = (Path::new(fields.next()?), Path::new(fields.next()?));
        let mut fields = after.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        let version = match kind {
            "cgroup2" => Version::Two,
            "cgroup" if options.split(',').any(|option| option == controller) => Version::One,
            _ => return None,
        };
        Some(Mount {
            group,
            point,
            version,
            controller,
        })
    }

    /// Returns the directories of the process's group and of those above it.
    fn levels(&self, root: &Path, groups: &str) -> Vec<(Version, PathBuf)> {
        let group = groups.lines().find_map(|line| self.own_group(line));
        let (Some(group), Ok(point)) = (group, self.point.strip_prefix("/")) else {
            return Vec::new();
        };
        // A group outside of the mount (a container with its host's names) is the mount itself.
        let below = group.strip_prefix(self.group).unwrap_or(Path::new(""));
        let top = root.join(point);
        let levels = below.ancestors();
        levels.map(|level| (self.version, top.join(level))).collect()
    }

    /// The group that a line of `/proc/self/cgroup` names for this hierarchy.
    fn own_group<'g>(&self, line: &'g str) -> Option<&'g Path> {
        let (id, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let ours = match self.version {
            Version::Two => id == "0" && controllers.is_empty(),
            Version::One => controllers.split(',').any(|name| name == self.controller),
        };
        ours.then(|| Path::new(group))
    }
}

/// Returns `None` for `max` and `-1`, which mean no quota.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse().ok()?;
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::memory_limit_under;
    use crate::fixture::Tree;

    const TWO: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const ONE: &str = "34 24 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";

    fn check(name: &str, mounts: &str, groups: &str, files: &[(&str, &str)], expected: Option<u64>) {
        let tree = Tree::new(&format!("memory-{name}"));
        tree.write("proc/self/mountinfo", mounts);
        tree.write("proc/self/cgroup", groups);
        for (path, text) in files {
            tree.write(path, text);
        }
        assert_eq!(memory_limit_under(tree.root()), expected, "{name}");
    }

    #[test]
    fn the_memory_limit_is_the_smallest_of_all_levels() {
        let files = [
            ("sys/fs/cgroup/pod/memory.max", "536870912\n"),
            ("sys/fs/cgroup/pod/app/memory.max", "max\n"),
        ];
        check("two", TWO, "0::/pod/app\n", &files, Some(512 << 20));
        check("none", TWO, "0::/pod/app\n", &files[1..], None);
        let limit = |bytes| [("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", bytes)];
        check("one", ONE, "5:memory:/pod\n", &limit("1048576\n"), Some(1 << 20));
        check(
            "one-none",
            ONE,
            "5:memory:/pod\n",
            &limit("9223372036854771712\n"),
            None,
        );
        check("other-controller", ONE, "5:cpu:/pod\n", &limit("1048576\n"), None);
    }
}
