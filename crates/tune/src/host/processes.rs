//! Other processes by name, and which of them holds a socket.

use crate::limits;
use crate::root::Root;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
}

/// The processes that may be seen.
#[derive(Clone, Debug, Default)]
pub struct Processes(Vec<Process>);

impl Processes {
    pub(super) fn look(root: &Root) -> Processes {
        let numbers = root
            .entries("/proc")
            .into_iter()
            .filter_map(|name| name.parse().ok());
        let mut all: Vec<Process> = numbers
            .filter_map(|pid: u32| {
                let name = root.find(&format!("/proc/{pid}/comm"))?;
                Some(Process { pid, name })
            })
            .collect();
        all.sort_by_key(|process| process.pid);
        Processes(all)
    }

    /// Whether all processes of a host can be seen: its first one is no program of a container's.
    #[must_use]
    pub fn are_all(&self) -> bool {
        let first = self.0.first().filter(|process| process.pid == 1);
        first.is_some_and(|process| {
            matches!(
                process.name.as_str(),
                "systemd" | "init" | "openrc-init" | "runit"
            )
        })
    }

    /// The first of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Process> {
        self.0.iter().find(|process| process.name == name)
    }

    /// The one of this number.
    #[must_use]
    pub fn of(&self, pid: u32) -> Option<&Process> {
        self.0.iter().find(|process| process.pid == pid)
    }

    /// Those that hold one of these sockets, by inode. Whose descriptors may not be looked at is left out.
    #[must_use]
    pub fn holding(&self, root: &Root, sockets: &[u64]) -> Vec<Process> {
        let wanted: Vec<String> = sockets.iter().map(|inode| format!("socket:[{inode}]")).collect();
        let holds = |process: &&Process| {
            let directory = format!("/proc/{}/fd", process.pid);
            let descriptors = root.entries(&directory);
            descriptors.iter().any(|name| {
                let to = root.link(&format!("{directory}/{name}"));
                to.is_some_and(|to| wanted.contains(&to))
            })
        };
        if wanted.is_empty() {
            return Vec::new();
        }
        self.0.iter().filter(holds).cloned().collect()
    }
}

/// Names for a sentence: `dhclient (612) and lldpd (700)`; of many, how many more.
#[must_use]
pub fn sentence(processes: &[Process]) -> String {
    let mut names: Vec<String> = processes
        .iter()
        .take(limits::NAMES)
        .map(|process| format!("{} ({})", process.name, process.pid))
        .collect();
    if processes.len() > limits::NAMES {
        names.push(format!("{} more", processes.len() - limits::NAMES));
    }
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}
