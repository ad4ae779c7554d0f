//! Secrets of commands: an argument, an environment variable, or a file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::error::CliError;
use crate::limits::SECRET_BYTES;

/// Returns the secret: the first line of `file` if one is named, else the given value.
///
/// # Errors
/// Fails if the file cannot be read, or its first line is empty or longer than [`SECRET_BYTES`].
pub(crate) fn read_secret(value: Option<&str>, file: Option<&Path>) -> Result<Option<String>, CliError> {
    let Some(path) = file else {
        return Ok(value.map(str::to_owned));
    };
    let shown = path.display();
    let opened =
        File::open(path).map_err(|error| CliError::Usage(format!("cannot read {shown}: {error}")))?;
    let mut line = String::new();
    BufReader::new(opened.take(SECRET_BYTES + 1))
        .read_line(&mut line)
        .map_err(|error| CliError::Usage(format!("cannot read {shown}: {error}")))?;
    let line = line.trim_end_matches(['\r', '\n']);
    if line.is_empty() || line.len() as u64 > SECRET_BYTES {
        return Err(CliError::Usage(format!(
            "{shown}: expected a secret of 1 to {SECRET_BYTES} bytes in the first line; found {}",
            if line.is_empty() {
                "an empty line"
            } else {
                "a longer one"
            }
        )));
    }
    Ok(Some(line.to_owned()))
}
