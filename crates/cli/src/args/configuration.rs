//! The command lines of `ringmain check` and `ringmain explain`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

/// A configuration file, or standard input.
#[derive(Debug, Args)]
pub(crate) struct Input {
    /// Configuration file; - reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Path of the file whose contents are on standard input, for messages and relative paths
    ///
    /// For editors, which check a file before it is saved. Default: the current directory
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    stdin_filename: Option<PathBuf>,
}

impl Input {
    /// Returns whether the text is read from standard input.
    pub(crate) fn is_stdin(&self) -> bool {
        self.file == Path::new("-")
    }

    /// Returns the path of the file; that of standard input is for messages and relative paths alone.
    pub(crate) fn path(&self) -> &Path {
        match &self.stdin_filename {
            _ if !self.is_stdin() => &self.file,
            Some(path) => path,
            None => Path::new("<stdin>"),
        }
    }

    /// Describes an option without effect, if any.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        (self.stdin_filename.is_some() && !self.is_stdin())
            .then_some("--stdin-filename is for standard input: write - in place of FILE, or drop it")
    }
}

/// Validate a configuration file.
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) input: Input,

    /// Output format
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    pub(crate) format: CheckFormat,
}

/// The output formats of `ringmain check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// Messages with the line of the file, and a caret below the column
    Text,
    /// A JSON array with an object for each error and warning
    Json,
}

/// Show which route a request matches.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) input: Input,

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
