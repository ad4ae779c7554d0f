//! Allocations of requests and of attacks, counted by the allocator, each case in a process of its own.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a test without harness reports its counts")]

mod cost;
mod forward;
mod h2;
mod table;

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    ringmain_testkit::cases::main(&[
        ("cost", cost::main),
        ("forward", forward::main),
        ("framed", h2::main),
        ("table", table::main),
    ])
}
