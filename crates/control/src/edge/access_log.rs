//! The access log: reopened after rotation, flushed at the end.

use std::io;

use ringmain_engine::Running;
use ringmain_gateway::model::{self, AccessLogFormat, LogDestination};
use ringmain_web::access_log::{Format, Template};
use ringmain_web::{AccessLog, CompiledApp};

use super::EdgeError;
use crate::limits::ACCESS_LOG_FLUSH;

/// The number of signals that have requested a reopen.
#[derive(Debug, Default)]
pub struct LogRotation(u64);

impl LogRotation {
    /// Reopens the log after a SIGUSR1, as with nginx, and after a SIGHUP, as with most other servers.
    pub fn reopen_on_signal<M: Send + 'static>(&mut self, running: &Running<M>, site: &CompiledApp) {
        let signals = running.reopens() + running.hangups();
        if std::mem::replace(&mut self.0, signals) != signals
            && let Some(log) = site.access_log()
        {
            log.reopen();
        }
    }
}

/// Writes the last lines.
pub fn flush(site: &CompiledApp) {
    let log = site.access_log();
    if log.is_some_and(|log| !log.finish(ACCESS_LOG_FLUSH)) {
        log::warn!("the last lines of the access log are lost: its destination is too slow");
    }
}

/// Opens the access log that is configured.
///
/// # Errors
/// The file cannot be opened, or the format has an unknown field.
pub fn open(config: &model::AccessLog) -> Result<AccessLog, EdgeError> {
    let log = match &config.to {
        LogDestination::Stdout => AccessLog::to_stdout(),
        LogDestination::Stderr => AccessLog::to_stderr(),
        LogDestination::File(path) => AccessLog::to_file(path),
    };
    let format = match &config.format {
        AccessLogFormat::Json => Format::Json,
        AccessLogFormat::Combined => Format::Combined,
        AccessLogFormat::Template(text) => {
            let template = Template::parse(text, &ringmain_gateway::LOG_FIELDS);
            Format::Template(
                template.map_err(|fault| EdgeError::Other(format!("access_log.format: {fault}")))?,
            )
        }
    };
    Ok(log.map_err(|error| open_error(&error))?.format(format))
}

/// Returns the error for a log that cannot be opened.
#[must_use]
pub fn open_error(error: &io::Error) -> EdgeError {
    EdgeError::Other(format!(
        "{error}; name a file that this user can write to, in an existing directory"
    ))
}
