//! The TLS options of `ringmain bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The TLS options for https:// and wss:// targets.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "TLS (https:// and wss:// targets)")]
pub(crate) struct Tls {
    /// Trusted certificate authorities (PEM) [default: those of the host]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,

    /// Do not verify the server's certificate and name
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Client certificate chain (PEM), for servers that request one
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) cert: Option<PathBuf>,

    /// Private key of --cert (PEM) [default: in the same file]
    #[arg(long, value_name = "FILE", requires = "cert", hide_short_help = true)]
    pub(crate) key: Option<PathBuf>,

    /// Server name for SNI and certificate verification [default: the host of the URL]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) sni: Option<String>,

    /// Use only this TLS version [default: 1.3, or 1.2 if the server does not support it]
    #[arg(long, value_name = "VERSION", value_enum, hide_short_help = true)]
    pub(crate) tls: Option<TlsVersion>,

    /// Disable session resumption: every connection does a full handshake
    #[arg(long, hide_short_help = true)]
    pub(crate) no_resume: bool,
}

/// TLS versions by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsVersion {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl Tls {
    /// Returns the first given option.
    pub(crate) fn first_given_option(&self) -> Option<&'static str> {
        let given = [
            ("--ca", self.ca.is_some()),
            ("--insecure", self.insecure),
            ("--cert", self.cert.is_some()),
            ("--key", self.key.is_some()),
            ("--sni", self.sni.is_some()),
            ("--tls", self.tls.is_some()),
            ("--no-resume", self.no_resume),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}
