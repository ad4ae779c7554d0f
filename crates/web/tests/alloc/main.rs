//! No allocation where none is promised: counted by the allocator, over all threads, in a process for each case.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a test without harness reports its counts")]

mod parts;
mod requests;
mod router;
mod ws;

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    ringmain_testkit::cases::main(&[
        ("parts", parts::main),
        ("requests", requests::main),
        ("router", router::main),
        ("ws", ws::main),
    ])
}
