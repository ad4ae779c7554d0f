//! No allocation per message once buffers are warm: counted by the allocator, in a process for each case.
#![forbid(unsafe_code)]

mod grpc;
mod h1;
mod h2;
mod tls;
mod ws;

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    ringmain_testkit::cases::main(&[
        ("grpc", grpc::main),
        ("h1", h1::main),
        ("h2", h2::main),
        ("tls", tls::main),
        ("ws", ws::main),
    ])
}
