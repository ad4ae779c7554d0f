//! Files: certificates and keys, the host's authorities, the log of secrets. Read or opened when settings are made.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ringmain_wire::tls::{Finding, KeyLog, Pem, Severity, Trust};

use crate::limits::PEM_FILE;

/// Reads a file of certificates or a key.
///
/// # Errors
/// A [`Finding`] that names the file: it cannot be read, or is larger than [`PEM_FILE`].
pub fn pem_file(path: &Path) -> Result<Pem, Finding> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(PEM_FILE + 1).read_to_end(&mut bytes));
    let read =
        read.map_err(|error| finding(path, format!("expected a file that can be read; found: {error}")))?;
    if read as u64 > PEM_FILE {
        let text = format!("expected certificates or a key; found more than {PEM_FILE} bytes");
        return Err(finding(path, text));
    }
    Ok(Pem {
        source: path.display().to_string(),
        bytes,
    })
}

/// The authorities that the host's administrator trusts, or those in the files that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
///
/// They are the host's and not the binary's, so that an authority that was withdrawn, or one of the house, needs no new
/// release of this.
///
/// # Errors
/// A [`Finding`]: there are none.
pub fn system_roots() -> Result<Trust, Finding> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let text = format!(
            "expected the host's certificates of authorities; found none. Install them (package ca-certificates), name a file in \
             SSL_CERT_FILE, or give an authority. {}",
            errors.join("; ")
        );
        return Err(Finding {
            severity: Severity::Error,
            source: "system authorities".to_owned(),
            text,
        });
    }
    Ok(Trust::Roots(
        found.certs.into_iter().map(|der| der.to_vec()).collect(),
    ))
}

/// Writes the secrets of sessions behind what is in a file, in the form of SSLKEYLOGFILE; the file is made for its owner alone.
/// Whoever reads it can read all these connections. Lines that cannot be written are lost.
///
/// # Errors
/// A [`Finding`] that names the file: it cannot be opened.
pub fn key_log_file(path: &Path) -> Result<KeyLog, Finding> {
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    let file =
        opened.map_err(|error| finding(path, format!("expected a file to append to; found: {error}")))?;
    let file = Mutex::new(file);
    Ok(KeyLog::new(move |line| {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_all(line.as_bytes());
    }))
}

fn finding(path: &Path, text: String) -> Finding {
    Finding {
        severity: Severity::Error,
        source: path.display().to_string(),
        text,
    }
}
