//! The TLS settings of a target: reads certificates and keys.

use std::path::Path;
use std::sync::Arc;

use ringmain_load::plan;
use ringmain_tls::{ClientSettings, KeyPair, PeerName, Pem, Trust, Version, pem_file, system_roots};

use crate::args::bench::{Tls, TlsVersion};
use crate::error::CliError;

/// The protocols offered with ALPN.
pub(super) const ALPN_HTTP1: &[u8] = b"http/1.1";
pub(super) const ALPN_HTTP2: &[u8] = b"h2";

/// Returns the TLS settings of a target: its certificate must match `name`, and `alpn` is the only protocol offered.
pub(super) fn client_tls(name: String, alpn: &[u8], args: &Tls) -> Result<plan::Tls, CliError> {
    let trust = match (&args.ca, args.insecure) {
        (Some(path), _) => Trust::Authorities(read_pem("--ca", path)?),
        (None, true) => Trust::AnybodyInsecure,
        (None, false) => system_roots().map_err(|finding| {
            CliError::Other(format!(
                "{}; pass a file with --ca, or disable verification with --insecure",
                finding.text
            ))
        })?,
    };
    let mut settings = ClientSettings::new(trust);
    settings.alpn = vec![alpn.to_vec()];
    settings.resume = !args.no_resume;
    if let Some(path) = &args.cert {
        settings.certificate = Some(KeyPair {
            chain: read_pem("--cert", path)?,
            key: read_pem("--key", args.key.as_ref().unwrap_or(path))?,
        });
    }
    match args.tls {
        None => {}
        Some(TlsVersion::Tls12) => plan::Tls::only(&mut settings, Version::Tls12),
        Some(TlsVersion::Tls13) => plan::Tls::only(&mut settings, Version::Tls13),
    }
    let name = match &args.sni {
        None => name,
        Some(name) => {
            PeerName::new(name).map_err(|error| CliError::Usage(format!("--sni: {error}")))?;
            name.clone()
        }
    };
    Ok(plan::Tls {
        settings: Arc::new(settings),
        name,
    })
}

/// Fails if TLS options are given, but no target uses TLS.
pub(super) fn check_tls_used(args: &Tls, is_spoken: bool) -> Result<(), CliError> {
    match args.first_given_option() {
        Some(option) if !is_spoken => Err(CliError::Usage(format!(
            "{option} is for https:// and wss:// targets: drop it, or use such a target"
        ))),
        _ => Ok(()),
    }
}

fn read_pem(option: &str, path: &Path) -> Result<Pem, CliError> {
    pem_file(path)
        .map_err(|finding| CliError::Usage(format!("{option}: {}: {}", finding.source, finding.text)))
}
