//! The command line of `ringmain init`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Write files to start with.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Files to write
    #[arg(value_enum, value_name = "KIND")]
    pub(crate) kind: InitKind,

    /// Directory of the files, created if it does not exist
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
}

/// The kinds of files that `ringmain init` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InitKind {
    /// Configuration of an API gateway, with its schema for editors
    Gateway,
    /// Configuration of a push server, with its schema, and a page that subscribes
    Push,
    /// HTTP application in Rust, with a test
    App,
}
