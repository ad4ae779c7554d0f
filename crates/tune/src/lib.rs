//! What a host costs a service, and how to have it cost less: settings audited, changed and taken back, and profiles that show why.
//!
//! Touches the kernel by `ringmain-sys` alone. Knows no flags, no terminal and nothing of how HTTP is served.

#![forbid(unsafe_code)]

pub mod apply;
pub mod audit;
pub mod catalogue;
pub mod cpus;
pub mod export;
pub mod host;
pub mod journal;
pub mod limits;
pub mod locality;
pub mod measure;
pub mod plan;
pub mod profile;
pub mod report;
pub mod root;
pub mod snapshot;
