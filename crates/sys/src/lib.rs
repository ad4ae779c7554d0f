//! Safe wrappers of raw kernel interfaces. Knows nothing of workers, protocols or policy.

pub mod addr;
pub mod audit;
pub mod cgroup;
pub mod clock;
pub mod cpu;
pub mod datagram;
pub mod ethtool;
pub mod event;
pub mod file;
#[cfg(test)]
mod fixture;
pub mod inherit;
pub mod limits;
pub mod listen;
pub mod memory;
pub mod netlink;
pub mod nftables;
pub mod notify;
pub mod perf;
pub mod process;
pub mod qdisc;
pub mod scm;
pub mod seccomp;
pub mod signal;
pub mod socket;
pub mod steering;
pub mod sysctl;
pub mod terminal;
pub mod ticks;
pub mod watch;
