//! What this process may sample, and, where the kernel refuses, which right or setting is missing and the command that gives it.
//!
//! Reads `/proc` and judges; asks the kernel for nothing.

#[cfg(test)]
mod tests;

use std::io;

use ringmain_sys::sysctl;

/// Numbers of capabilities.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYSLOG: u32 = 34;
const CAP_PERFMON: u32 = 38;

/// `EPERM`, `EACCES`, `ENOSYS`.
const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENOSYS: i32 = 38;

/// What decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    /// The sysctl `kernel.perf_event_paranoid`; `None` where there is none, as in kernels without perf.
    pub(super) paranoid: Option<i64>,
    /// The sysctl `kernel.kptr_restrict`.
    pub(super) kptr_restrict: Option<i64>,
    /// Effective capabilities, a bit each.
    pub(super) capabilities: u64,
    /// System calls are filtered.
    pub(super) filtered: bool,
}

impl Rights {
    /// Those of the calling thread.
    pub(super) fn read() -> Rights {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let number = |name: &str| sysctl::read(name)?.parse().ok();
        Rights {
            paranoid: number("kernel.perf_event_paranoid"),
            kptr_restrict: number("kernel.kptr_restrict"),
            ..Rights::of(&status)
        }
    }

    fn of(status: &str) -> Rights {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim())
        };
        Rights {
            capabilities: field("CapEff:")
                .and_then(|bits| u64::from_str_radix(bits, 16).ok())
                .unwrap_or(0),
            filtered: field("Seccomp:").is_some_and(|mode| mode != "0"),
            ..Rights::default()
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }

    fn may_sample_all(&self) -> bool {
        self.has(CAP_PERFMON) || self.has(CAP_SYS_ADMIN)
    }

    /// Why sampling was refused, and what to do, as the end of a sentence. `who`, such as `process 12`.
    pub(super) fn refused(&self, error: &io::Error, who: &str) -> String {
        match error.raw_os_error() {
            Some(ENOSYS) => "this kernel has no perf_event_open (CONFIG_PERF_EVENTS), or a sandbox hides it: profile on another host, or \
                             outside of it"
                .into(),
            Some(EPERM | EACCES) => self.missing(who),
            _ => "the cause of this refusal is not known; `dmesg` may show more".into(),
        }
    }

    fn missing(&self, who: &str) -> String {
        let level = self.paranoid.unwrap_or(2);
        if self.filtered && (self.may_sample_all() || level <= 2) {
            return "this process runs under a seccomp filter, as in containers, and such filters refuse perf_event_open: start the \
                    container with `--cap-add PERFMON` (docker, podman; the default profile allows it then), or with a profile that \
                    allows the call, or profile from the host by the process's number there"
                .into();
        }
        if self.may_sample_all() {
            return format!(
                "this process has CAP_PERFMON and may not inspect {who} nevertheless (another user namespace, or a security \
                 module such as SELinux, AppArmor or lockdown): profile from the host, as root"
            );
        }
        if level > 2 {
            return format!(
                "kernel.perf_event_paranoid is {level}, which leaves sampling to CAP_PERFMON, and this process does not have \
                 it: run it with sudo, or allow it until the next start of the host with `sudo sysctl \
                 kernel.perf_event_paranoid=2` (1: with the kernel)"
            );
        }
        format!(
            "{who} belongs to another user, or may not be inspected: run this with sudo, or give the program the rights with \
             `sudo setcap cap_perfmon,cap_sys_ptrace,cap_syslog=ep ringmain`"
        )
    }

    /// Why the kernel's part of stacks is not there, and what to do.
    pub(super) fn no_kernel(&self) -> String {
        let level = self
            .paranoid
            .map_or_else(|| "not readable".into(), |level| level.to_string());
        format!(
            "the kernel's part is missing: kernel.perf_event_paranoid is {level} and this process does not have CAP_PERFMON; \
             run it with sudo, or allow it with `sudo sysctl kernel.perf_event_paranoid=1`"
        )
    }

    /// Why the kernel's functions have no names, and what to do.
    pub(super) fn no_kernel_names(&self) -> String {
        match self.kptr_restrict {
            Some(2..) => "the kernel's functions have no names: kernel.kptr_restrict is 2, which hides their addresses from \
                          all users; show them with `sudo sysctl kernel.kptr_restrict=1`"
                .into(),
            _ if self.has(CAP_SYSLOG) => "the kernel's functions have no names: /proc/kallsyms shows none in this container or on this \
                                          kernel (CONFIG_KALLSYMS); profile from the host"
                .into(),
            _ => "the kernel's functions have no names: /proc/kallsyms hides their addresses without CAP_SYSLOG; run this with \
                  sudo, or allow it with `sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1`"
                .into(),
        }
    }
}
