//! Options of TLS: certificates, client certificates, protocol versions.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use ringmain_engine::Addr;

#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct Tls {
    /// Serve HTTPS with this certificate chain (PEM)
    ///
    /// Repeatable, each with a --key. The server name (SNI) selects the certificate; the first one is for clients without
    /// a matching name. SIGHUP reloads the files: connections stay open, and an invalid file is logged and changes nothing
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    pub(crate) cert: Vec<PathBuf>,

    /// Private key (PEM) of the --cert at the same position
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    pub(crate) key: Vec<PathBuf>,

    /// Serve HTTPS with a self-signed certificate for this host
    ///
    /// It is generated at startup, for localhost, 127.0.0.1 and ::1. Clients do not trust it: the log has its fingerprint, and curl accepts it with
    /// --insecure
    #[arg(long, conflicts_with = "cert")]
    pub(crate) tls_dev: bool,

    /// Additional address that redirects HTTP clients to HTTPS (308)
    #[arg(long, value_name = "ADDR", hide_short_help = true)]
    pub(crate) redirect_http: Option<Addr>,

    /// Require client certificates issued by these authorities (PEM)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) client_ca: Option<PathBuf>,

    /// Accept clients without a certificate; those with an invalid certificate are rejected
    #[arg(long, hide_short_help = true, requires = "client_ca")]
    pub(crate) client_cert_optional: bool,

    /// Minimum TLS version [default: 1.2]
    #[arg(long, value_name = "VERSION", value_enum, hide_short_help = true)]
    pub(crate) tls_min: Option<TlsMin>,

    /// Append the TLS secrets of connections to a file, for Wireshark (SSLKEYLOGFILE format)
    ///
    /// With this file the connections can be decrypted: for debugging only
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) key_log: Option<PathBuf>,
}

/// TLS versions by their names on the command line.
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
    /// Returns whether the listeners use TLS.
    pub(crate) fn is_enabled(&self) -> bool {
        self.tls_dev || !self.cert.is_empty() || !self.key.is_empty()
    }

    /// Returns the given options.
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

    /// Describes the first conflict between valid options, if any.
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
                "--redirect-http {plain} needs a port to redirect clients to: add --listen IP:PORT, or drop it"
            ));
        }
        // Port 0 is a different port for each listener.
        let any = matches!(plain, Addr::Inet(plain) if plain.port() == 0);
        if !any && listen.contains(plain) {
            return Some(format!(
                "--redirect-http {plain} is an address of --listen, which serves HTTPS: use another address for one"
            ));
        }
        None
    }
}
