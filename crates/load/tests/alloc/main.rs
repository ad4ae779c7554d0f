//! No allocation per request once buffers are warm: counted by the allocator, in a process for each case.
#![forbid(unsafe_code)]

mod traffic;

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    ringmain_testkit::cases::main(&[("traffic", traffic::main)])
}
