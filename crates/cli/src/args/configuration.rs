//! The command lines of `ringmain check` and `ringmain explain`.

use std::path::PathBuf;

use clap::Args;

/// Validate a configuration file.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Configuration file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Print errors and warnings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show which route a request matches.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Configuration file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Request method, such as GET
    #[arg(value_name = "METHOD", required_unless_present_any = ["listener", "sni"], conflicts_with_all = ["listener", "sni"])]
    pub(crate) method: Option<String>,

    /// Request URL, such as http://shop.example/cart?id=1
    #[arg(value_name = "URL", required_unless_present_any = ["listener", "sni"])]
    pub(crate) url: Option<String>,

    /// Request header; repeatable
    #[arg(long = "header", short = 'H', value_name = "NAME:VALUE", conflicts_with_all = ["listener", "sni"])]
    pub(crate) headers: Vec<String>,

    /// Explain a TLS passthrough connection with this server name (SNI) instead of a request
    #[arg(long, value_name = "HOST")]
    pub(crate) sni: Option<String>,

    /// Explain a connection at this listener, by name, address or port [default: the first that accepts it]
    #[arg(long, value_name = "LISTENER")]
    pub(crate) listener: Option<String>,

    /// Print the explanation as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
