//! The CPU quota of the control groups that this process is in.
//!
//! A group's quota holds for all groups below it, so each level up to the mount counts. Inside a
//! container the groups above the mount cannot be seen; then the mount itself is the container's group.

use std::fs;
use std::path::{Path, PathBuf};

/// The smallest quota in CPUs, read from a file system that begins at `root`.
pub(super) fn under(root: &Path) -> Option<f64> {
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    mounts
        .lines()
        .filter_map(Mount::parse)
        .filter_map(|mount| mount.smallest(root, &groups))
        .min_by(f64::total_cmp)
}

/// A mounted hierarchy that can hold a CPU quota.
struct Mount<'a> {
    /// The group that is seen at the mount point.
    group: &'a Path,
    point: &'a Path,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl<'a> Mount<'a> {
    /// Parses a line of proc_pid_mountinfo(5), if it is such a hierarchy.
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (group, point) = (Path::new(fields.next()?), Path::new(fields.next()?));
        let mut fields = after.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        let version = match kind {
            "cgroup2" => Version::Two,
            "cgroup" if options.split(',').any(|option| option == "cpu") => Version::One,
            _ => return None,
        };
        Some(Mount {
            group,
            point,
            version,
        })
    }

    fn smallest(&self, root: &Path, groups: &str) -> Option<f64> {
        let group = groups.lines().find_map(|line| self.own_group(line))?;
        // A group outside of the mount (a container with its host's names) is the mount itself.
        let below = group.strip_prefix(self.group).unwrap_or(Path::new(""));
        let top = root.join(self.point.strip_prefix("/").ok()?);
        below
            .ancestors()
            .filter_map(|level| self.read(&top.join(level)))
            .min_by(f64::total_cmp)
    }

    /// The group that a line of `/proc/self/cgroup` names for this hierarchy.
    fn own_group<'g>(&self, line: &'g str) -> Option<&'g Path> {
        let (id, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let ours = match self.version {
            Version::Two => id == "0" && controllers.is_empty(),
            Version::One => controllers.split(',').any(|name| name == "cpu"),
        };
        ours.then(|| Path::new(group))
    }

    fn read(&self, directory: &Path) -> Option<f64> {
        match self.version {
            Version::Two => {
                let text = fs::read_to_string(directory.join("cpu.max")).ok()?;
                let (quota, period) = text.trim().split_once(' ')?;
                ratio(quota, period)
            }
            Version::One => {
                let read = |name| fs::read_to_string(PathBuf::from(directory).join(name)).ok();
                ratio(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
            }
        }
    }
}

/// `max` and `-1` stand for no quota.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse().ok()?;
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}
