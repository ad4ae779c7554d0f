//! The process log of a gateway: its format is a key of the configuration, and findings of a configuration are lines with fields.

use std::path::Path;

use ringmain_gateway::model::{Config, ProcessLogFormat};
use ringmain_web::process_log;

use crate::config::{ConfigError, FilePosition, Warning};

/// Sets the format of the process log, unless the program has selected one.
pub(crate) fn apply_format(config: &Config) {
    process_log::configure(match config.process_log.format {
        ProcessLogFormat::Text => process_log::ProcessLogFormat::Text,
        ProcessLogFormat::Json => process_log::ProcessLogFormat::Json,
    });
}

/// Logs an error of a configuration file.
pub(crate) fn log_config_error(error: &ConfigError) {
    let FilePosition { line, column } = error.position;
    log::error!(event = "configuration_error", file = error.file.as_str(), line, column; "{error}");
}

/// Logs a warning about a configuration file.
pub(crate) fn log_config_warning(warning: &Warning) {
    let FilePosition { line, column } = warning.position;
    log::warn!(event = "configuration_warning", file = warning.file.as_str(), line, column; "{warning}");
}

/// Logs that a configuration file was rejected; the previous configuration stays active.
pub(crate) fn log_rejection(file: &Path) {
    let name = file.display();
    log::error!(
        event = "configuration_rejected", file:% = name;
        "{name}: invalid configuration, no part was applied; keeping the previous configuration"
    );
}
