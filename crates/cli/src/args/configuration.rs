//! The commands about configuration files.

use std::path::PathBuf;

use clap::Args;

/// Say whether a configuration file is right.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Print what is wrong as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say where a request goes.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The request's method, such as GET
    #[arg(value_name = "METHOD")]
    pub(crate) method: String,

    /// The request's URL, such as http://shop.example/cart?id=1
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// A header of the request; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME:VALUE")]
    pub(crate) headers: Vec<String>,

    /// Print the explanation as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
