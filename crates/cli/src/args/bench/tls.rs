//! What `ringmain bench` may say of TLS on its command line.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How connections to https:// and wss:// targets are secured.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "TLS (https:// and wss:// targets)")]
pub(crate) struct Tls {
    /// Believe servers whose certificates these authorities have issued (PEM) [default: those that the host trusts]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,

    /// Believe every server: neither its certificate nor its name is checked
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Show this certificate, with those that issued it (PEM), to servers that ask for one
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) cert: Option<PathBuf>,

    /// The key of --cert (PEM) [default: it is in the same file]
    #[arg(long, value_name = "FILE", requires = "cert", hide_short_help = true)]
    pub(crate) key: Option<PathBuf>,

    /// The name that is asked for (SNI) and that certificates have to be for [default: the host of the URL]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) sni: Option<String>,

    /// Speak this version only [default: 1.3, or 1.2 with servers that know no better]
    #[arg(long, value_name = "VERSION", value_enum, hide_short_help = true)]
    pub(crate) tls: Option<TlsVersion>,

    /// Resume no session: each connection pays for a full handshake
    #[arg(long, hide_short_help = true)]
    pub(crate) no_resume: bool,
}

/// The versions of TLS by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsVersion {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl Tls {
    /// The first option given.
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
