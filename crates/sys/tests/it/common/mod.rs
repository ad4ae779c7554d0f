//! What the tests share: temporary directories and running a test of this binary in a child process.

#![allow(unreachable_pub, reason = "a module of one test binary")]

use std::process::Command;

use ringmain_testkit::program;

pub use ringmain_testkit::folder::Folder as Directory;

/// Whether this process is a child made by [`in_child`].
pub fn is_child() -> bool {
    std::env::var_os("RINGMAIN_TEST_CHILD").is_some()
}

/// A command that runs one test of this binary alone, in a process of its own.
pub fn in_child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("RINGMAIN_TEST_CHILD", "1");
    command
}

/// Runs one test of this binary in a child and fails with its output if it fails.
pub fn run_in_child(test: &str) {
    let output = program::output(&mut in_child(test)).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "the child ran no test:\n{text}");
}

/// Whether the tests run as root; those that need it say so when they do nothing.
#[expect(
    clippy::print_stderr,
    reason = "a test that does nothing must not look like one that passed"
)]
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root");
    }
    root
}

/// Gives up root for the user and group "nobody", for good.
pub fn become_nobody() {
    // SAFETY: plain system calls without pointers; the arguments of setgroups say "none".
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setgid(65534), 0);
        assert_eq!(libc::setuid(65534), 0);
    }
}
