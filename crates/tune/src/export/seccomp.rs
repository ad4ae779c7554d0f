//! The system calls that Ringmain makes, as a profile that container runtimes take.

use serde_json::{Value, json};

/// PLACEHOLDER
pub const CALLS: &[&str] = &[];

/// The profile: these calls are allowed, all others fail with EPERM.
#[must_use]
pub fn seccomp() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 1,
        "archMap": [
            { "architecture": "SCMP_ARCH_X86_64", "subArchitectures": [] },
            { "architecture": "SCMP_ARCH_AARCH64", "subArchitectures": [] },
        ],
        "syscalls": [{ "names": CALLS, "action": "SCMP_ACT_ALLOW" }],
    })
}
