//! Files of certificates and keys, the authorities of the host and the key log. They are read or opened only when settings are created.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ringmain_wire::tls::{Finding, KeyLog, Pem, Severity, Trust};

use crate::limits::PEM_FILE_BYTES;

/// Reads a PEM file of certificates or a key.
///
/// # Errors
/// A [`Finding`] that names the file if it cannot be read or is larger than [`PEM_FILE_BYTES`].
pub fn pem_file(path: &Path) -> Result<Pem, Finding> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(PEM_FILE_BYTES + 1).read_to_end(&mut bytes));
    let read =
        read.map_err(|error| error_in(path, format!("expected a file that can be read; found: {error}")))?;
    if read as u64 > PEM_FILE_BYTES {
        let text = format!("expected certificates or a key; found more than {PEM_FILE_BYTES} bytes");
        return Err(error_in(path, text));
    }
    Ok(Pem {
        source: path.display().to_string(),
        bytes,
    })
}

/// Returns the authorities that the host trusts, or those in the locations that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
///
/// None are compiled in, so that withdrawing an authority or adding a private one needs no new release.
///
/// # Errors
/// A [`Finding`] if no certificate could be loaded.
pub fn system_roots() -> Result<Trust, Finding> {
    let loaded = rustls_native_certs::load_native_certs();
    if loaded.certs.is_empty() {
        let errors: Vec<String> = loaded.errors.iter().map(ToString::to_string).collect();
        let text = format!(
            "expected the host's certificates of authorities; found none. Install them (package ca-certificates), name a file in \
             SSL_CERT_FILE, or configure an authority. {}",
            errors.join("; ")
        );
        return Err(Finding {
            severity: Severity::Error,
            source: "system authorities".to_owned(),
            text,
        });
    }
    Ok(Trust::Roots(
        loaded.certs.into_iter().map(|der| der.to_vec()).collect(),
    ))
}

/// Opens a file to which session secrets are appended in the format of `SSLKEYLOGFILE`.
///
/// If the file does not exist, it is created with mode 0600: its contents decrypt all connections that are logged. Lines that cannot be
/// written are lost.
///
/// # Errors
/// A [`Finding`] that names the file if it cannot be opened.
pub fn key_log_file(path: &Path) -> Result<KeyLog, Finding> {
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    let file =
        opened.map_err(|error| error_in(path, format!("expected a file to append to; found: {error}")))?;
    let file = Mutex::new(file);
    Ok(KeyLog::new(move |line| {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_all(line.as_bytes());
    }))
}

fn error_in(path: &Path, text: String) -> Finding {
    Finding {
        severity: Severity::Error,
        source: path.display().to_string(),
        text,
    }
}
