//! From a configuration file to "this can serve": the one path that `ringmain check`, a start and a reload share.
//!
//! ```text
//! Loaded ─▶ errors of the file ─▶ compiled: rules, upstreams, listeners, TLS ─▶ destinations of logs ─▶ served
//!              └────────────────────────┴──────────── any ────────────┴─▶ Rejected: nothing changes
//! ```

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use ringmain_gateway::Gateway;
use ringmain_gateway::filter::Filters;
use ringmain_gateway::model::{AccessLog, Config, LogDestination};
use ringmain_gateway::table::Problem;
use ringmain_sys::clock;

use crate::config::{ConfigError, Loaded};
use crate::merge::ConfigMerger;

/// All errors of a configuration, in the order of its file.
#[derive(Clone, Debug, Default)]
pub struct Rejected {
    /// At most [`CONFIG_ERRORS`](crate::limits::CONFIG_ERRORS) of the file, and the problems of compilation.
    pub errors: Vec<ConfigError>,
    /// The number of further errors.
    pub omitted: usize,
}

impl Rejected {
    /// Returns the number of errors.
    #[must_use]
    pub fn count(&self) -> usize {
        self.errors.len() + self.omitted
    }

    /// Returns the number in words: `2 errors`.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.count() {
            1 => "1 error".to_owned(),
            count => format!("{count} errors"),
        }
    }
}

/// Builds a gateway from a file that was read.
///
/// # Errors
/// The errors of the configuration.
pub(crate) fn build_gateway(loaded: &mut Loaded, filters: &Filters) -> Result<Gateway, Rejected> {
    // A file with errors is compiled as well, so that all errors are reported at once.
    let config = loaded.config.take().map(Arc::new);
    let destination_errors = config.as_ref().map(|config| check_destinations(loaded, config));
    let destination_errors = destination_errors.unwrap_or_default();
    let gateway = config.map(|config| Gateway::with_filters(config, filters.clone(), clock::realtime()));
    let problems = gateway.as_ref().map(Gateway::problems).unwrap_or_default();
    match gateway {
        Some(gateway) if is_valid(loaded) && problems.is_empty() && destination_errors.is_empty() => {
            Ok(gateway)
        }
        _ => Err(rejection(loaded, &problems, destination_errors)),
    }
}

/// Applies a file to a serving gateway. `last` is the served configuration. Returns the new one.
///
/// # Errors
/// The errors of the configuration: the gateway keeps the previous one.
pub(crate) fn apply(
    merger: &ConfigMerger,
    loaded: &mut Loaded,
    last: &Arc<Config>,
) -> Result<Arc<Config>, Rejected> {
    let destination_errors = loaded
        .config
        .as_ref()
        .map(|config| check_destinations(loaded, config));
    let destination_errors = destination_errors.unwrap_or_default();
    let (now, gateway) = (clock::realtime(), merger.gateway());
    let valid = destination_errors
        .is_empty()
        .then(|| loaded.take_valid(Some(last)));
    if let Some(config) = valid.flatten() {
        let config = Arc::new(config);
        // An address that could not be listened at may be free now.
        if config == *last && gateway.unbound_addrs().is_empty() {
            return Ok(Arc::clone(last));
        }
        let replaced = merger.replace_file(config, now);
        return replaced.map_err(|problems| rejection(loaded, &problems, destination_errors));
    }
    let config = loaded.config.take().map(Arc::new);
    let problems = config
        .map(|config| gateway.check(config, now))
        .unwrap_or_default();
    Err(rejection(loaded, &problems, destination_errors))
}

fn is_valid(loaded: &Loaded) -> bool {
    loaded.errors.is_empty() && loaded.omitted == 0
}

fn rejection(loaded: &Loaded, problems: &[Problem], destination_errors: Vec<ConfigError>) -> Rejected {
    let mut errors = loaded.all_errors(problems);
    errors.extend(destination_errors);
    errors.sort_by_key(|error| error.position);
    Rejected {
        errors,
        omitted: loaded.omitted,
    }
}

/// Files and folders that are to be written and cannot be.
fn check_destinations(loaded: &Loaded, config: &Config) -> Vec<ConfigError> {
    let log = check_access_log(loaded, config);
    log.into_iter().chain(check_state_dir(loaded, config)).collect()
}

fn check_state_dir(loaded: &Loaded, config: &Config) -> Option<ConfigError> {
    let folder = config.push.as_ref()?.state_dir.as_ref()?;
    // Missing directories are created at the start.
    let existing = folder.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    let probe = existing
        .unwrap_or(folder)
        .join(format!(".ringmain-check-{}", std::process::id()));
    let error = check_appendable(&probe).err()?;
    Some(loaded.state_dir_error(format!("`{}`: {error}", folder.display())))
}

fn check_access_log(loaded: &Loaded, config: &Config) -> Option<ConfigError> {
    let AccessLog { to, .. } = config.access_log.as_ref()?;
    let LogDestination::File(path) = to else {
        return None;
    };
    let error = check_appendable(path).err()?;
    Some(loaded.access_log_error(format!("`{}`: {error}", path.display())))
}

/// Checks that a log can be appended to a file, or created.
fn check_appendable(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).mode(0o640);
    match fs::metadata(path) {
        Ok(status) if status.is_file() => options.open(path).map(drop),
        Ok(status) if status.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // A pipe or a device: opening it may wait for a reader.
        Ok(_) => Ok(()),
        // A link to a file that does not exist yet.
        Err(_) if fs::symlink_metadata(path).is_ok() => options.create(true).open(path).map(drop),
        Err(_) => {
            options.create_new(true).open(path)?;
            fs::remove_file(path)
        }
    }
}
