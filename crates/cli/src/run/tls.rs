//! TLS of `ringmain run`: certificates from files or generated for development, reloaded on SIGHUP.

use std::path::PathBuf;

use ringmain_sys::clock;
use ringmain_tls::{
    Acceptor, ClientCertificates, ConfigError, DevCertificate, Finding, KeyLog, KeyPair, ServerSettings,
    Version, key_log_file, pem_file,
};

use crate::args::{Tls, TlsMin};
use crate::error::CliError;

/// The certificates of the listeners, and their files.
pub(super) struct Certificates {
    pub(super) acceptor: Acceptor,
    source: Source,
    hangups: u64,
}

/// The source of the TLS settings.
struct Source {
    pairs: Vec<(PathBuf, PathBuf)>,
    development: Option<KeyPair>,
    client_ca: Option<PathBuf>,
    optional: bool,
    minimum: Version,
    key_log: Option<KeyLog>,
}

impl Certificates {
    /// Reads the certificates, and logs them. Returns `None` without TLS options.
    pub(super) fn open(args: &Tls) -> Result<Option<Certificates>, CliError> {
        if !args.is_enabled() {
            return Ok(None);
        }
        let mut wrong = Vec::new();
        let source = Source::from_args(args, &mut wrong)?;
        let settings = source.read_settings(wrong).map_err(CliError::other)?;
        let acceptor = Acceptor::new(&settings, clock::realtime()).map_err(CliError::other)?;
        for warning in acceptor.warnings() {
            log::warn!("{warning}");
        }
        let now = clock::realtime().as_secs();
        for certificate in acceptor.certificates() {
            let (names, source) = (certificate.names.join(", "), &certificate.source);
            let (days, fingerprint) = (certificate.days_left(now), certificate.fingerprint_text());
            log::info!(
                event = "certificate_loaded", names = names.as_str(), file:% = source, days_left = days;
                "certificate for {names} ({source}): {days} days left, SHA-256 {fingerprint}"
            );
        }
        Ok(Some(Certificates {
            acceptor,
            source,
            hangups: 0,
        }))
    }

    /// Reloads the files after a SIGHUP. On an error the previous certificates remain in use.
    pub(super) fn reload_on_hangup(&mut self, hangups: u64) {
        if std::mem::replace(&mut self.hangups, hangups) == hangups {
            return;
        }
        let settings = self.source.read_settings(Vec::new());
        let reload = settings.and_then(|settings| self.acceptor.reload(&settings, clock::realtime()));
        match reload {
            Ok(reload) => reload
                .to_string()
                .lines()
                .for_each(|line| log::info!(event = "certificate_reloaded"; "certificates reloaded: {line}")),
            Err(refused) => {
                log::error!(event = "certificate_rejected"; "{refused}; keeping the previous certificates");
            }
        }
    }
}

impl Source {
    /// Reads the settings that are fixed at startup, and appends errors to `wrong`.
    fn from_args(args: &Tls, wrong: &mut Vec<Finding>) -> Result<Source, CliError> {
        let development = if args.tls_dev {
            let made = DevCertificate::new(&[], clock::realtime()).map_err(CliError::other)?;
            Some(made.pair)
        } else {
            None
        };
        let opened = args.key_log.as_deref().map(key_log_file);
        let key_log = opened.and_then(|opened| opened.map_err(|finding| wrong.push(finding)).ok());
        if let (Some(_), Some(path)) = (&key_log, &args.key_log) {
            log::warn!(
                "TLS secrets of every connection are written to {}",
                path.display()
            );
        }
        Ok(Source {
            pairs: args.cert.iter().cloned().zip(args.key.iter().cloned()).collect(),
            development,
            client_ca: args.client_ca.clone(),
            optional: args.client_cert_optional,
            minimum: match args.tls_min {
                Some(TlsMin::V13) => Version::Tls13,
                Some(TlsMin::V12) | None => Version::Tls12,
            },
            key_log,
        })
    }

    /// Reads the files. Returns all errors together, after those in `wrong`.
    fn read_settings(&self, mut wrong: Vec<Finding>) -> Result<ServerSettings, ConfigError> {
        let mut read = |path: &PathBuf| pem_file(path).map_err(|finding| wrong.push(finding)).ok();
        let mut certificates: Vec<KeyPair> = self.development.iter().cloned().collect();
        for (chain, key) in &self.pairs {
            let pair = (read(chain), read(key));
            if let (Some(chain), Some(key)) = pair {
                certificates.push(KeyPair { chain, key });
            }
        }
        let authorities = self.client_ca.as_ref().map(read);
        let client_certificates = match authorities.flatten() {
            None => ClientCertificates::Off,
            Some(authorities) if self.optional => ClientCertificates::Optional(authorities),
            Some(authorities) => ClientCertificates::Required(authorities),
        };
        let settings = ServerSettings {
            certificates,
            client_certificates,
            minimum_version: self.minimum,
            alpn: ringmain_tls::http_protocols(),
            key_log: self.key_log.clone(),
            ..ServerSettings::default()
        };
        if wrong.is_empty() {
            return Ok(settings);
        }
        // Readable files may have errors, too.
        if !settings.certificates.is_empty()
            && let Err(ConfigError(more)) = Acceptor::new(&settings, clock::realtime())
        {
            wrong.extend(more);
        }
        Err(ConfigError(wrong))
    }
}
