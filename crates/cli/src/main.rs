//! The one binary `ringmain`.
#![forbid(unsafe_code)]

fn main() {}
