//! The wrappers against the kernel: addresses, files, listeners, processes, sockets.

mod common;

mod addr;
mod file;
mod inherit;
mod kernel;
mod limits;
mod listen;
mod process;
mod socket;
mod watch;
