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
    #[arg(value_name = "METHOD", required_unless_present_any = ["listener", "sni"], conflicts_with_all = ["listener", "sni"])]
    pub(crate) method: Option<String>,

    /// The request's URL, such as http://shop.example/cart?id=1
    #[arg(value_name = "URL", required_unless_present_any = ["listener", "sni"])]
    pub(crate) url: Option<String>,

    /// A header of the request; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME:VALUE", conflicts_with_all = ["listener", "sni"])]
    pub(crate) headers: Vec<String>,

    /// A connection that is not looked into, in place of a request: the name that its client asks for by TLS
    #[arg(long, value_name = "HOST")]
    pub(crate) sni: Option<String>,

    /// Where that connection comes in: a listener's name, an address, or a port [default: the first for its name]
    #[arg(long, value_name = "LISTENER")]
    pub(crate) listener: Option<String>,

    /// Print the explanation as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
