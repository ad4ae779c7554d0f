//! Options of TLS: certificates, who may come in, what is spoken.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use ringmain_engine::Addr;

#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Tls {
    /// Serve HTTPS with this certificate chain (PEM)
    ///
    /// May be given several times, each with a --key. The names in the certificates choose between them; the first is for
    /// clients that ask for none of them. SIGHUP reads them anew: connections go on, and files that are wrong are said and change nothing
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    pub(crate) cert: Vec<PathBuf>,

    /// The private key (PEM) of the --cert at the same place in the order
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    pub(crate) key: Vec<PathBuf>,

    /// Serve HTTPS with a certificate made at the start, for this host alone
    ///
    /// It is for localhost, 127.0.0.1 and ::1. No client trusts it by itself: the log says its fingerprint, and curl takes it with --insecure
    #[arg(long, conflicts_with = "cert")]
    pub(crate) tls_dev: bool,

    /// Listen here, too, and send clients to https (308)
    #[arg(long, value_name = "ADDR", hide_short_help = true)]
    pub(crate) redirect_http: Option<Addr>,

    /// Ask clients for a certificate that one of these authorities (PEM) has signed
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) client_ca: Option<PathBuf>,

    /// A client without a certificate is let in; one with a wrong certificate is not
    #[arg(long, hide_short_help = true, requires = "client_ca")]
    pub(crate) client_cert_optional: bool,

    /// The oldest version of TLS that is spoken [default: 1.2]
    #[arg(long, value_name = "VERSION", value_enum, hide_short_help = true)]
    pub(crate) tls_min: Option<TlsMin>,

    /// Append the secrets of each connection to a file, for Wireshark (SSLKEYLOGFILE format)
    ///
    /// Whoever reads it can read the connections: for debugging only
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) key_log: Option<PathBuf>,
}

/// Versions of TLS by their names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsMin {
    /// TLS 1.2, with forward secrecy and AEAD suites only
    #[value(name = "1.2")]
    V12,
    /// TLS 1.3
    #[value(name = "1.3")]
    V13,
}

impl Tls {
    /// Whether the listeners speak TLS.
    pub(crate) fn is_enabled(&self) -> bool {
        self.tls_dev || !self.cert.is_empty() || !self.key.is_empty()
    }

    /// Options given.
    pub(super) fn given_options(&self) -> Vec<&'static str> {
        let given = [
            ("--cert", !self.cert.is_empty()),
            ("--key", !self.key.is_empty()),
            ("--tls-dev", self.tls_dev),
            ("--redirect-http", self.redirect_http.is_some()),
            ("--client-ca", self.client_ca.is_some()),
            ("--tls-min", self.tls_min.is_some()),
            ("--key-log", self.key_log.is_some()),
        ];
        let given = given.into_iter().filter(|(_, given)| *given);
        given.map(|(name, _)| name).collect()
    }

    /// What makes no sense together.
    pub(super) fn contradiction(&self, listen: &[Addr]) -> Option<String> {
        let (certs, keys) = (self.cert.len(), self.key.len());
        if certs != keys {
            return Some(format!(
                "expected a --key for each --cert, found {certs} --cert and {keys} --key"
            ));
        }
        if let (false, Some(option)) = (self.is_enabled(), self.given_options().first()) {
            return Some(format!(
                "{option} is for TLS: add --cert and --key or --tls-dev, or drop it"
            ));
        }
        let plain = self.redirect_http.as_ref()?;
        let has_port = |addr: &Addr| matches!(addr, Addr::Inet(_));
        if !listen.is_empty() && !listen.iter().any(has_port) {
            return Some(format!(
                "--redirect-http {plain} needs a port to send clients to: add --listen IP:PORT, or drop it"
            ));
        }
        // Port 0 is another one each time.
        let any = matches!(plain, Addr::Inet(plain) if plain.port() == 0);
        if !any && listen.contains(plain) {
            return Some(format!(
                "--redirect-http {plain} is where --listen serves https: name another address for one of them"
            ));
        }
        None
    }
}
