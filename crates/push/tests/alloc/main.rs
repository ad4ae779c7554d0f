//! What clients and publications cost in memory: counted by the allocator, in a process for each case.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a test without harness reports its counts")]

mod cost;

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    ringmain_testkit::cases::main(&[("cost", cost::main)])
}
