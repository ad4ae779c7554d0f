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

/// Everything that is wrong with a configuration, in the order of its file.
#[derive(Clone, Debug, Default)]
pub struct Rejected {
    /// At most [`CONFIG_ERRORS`](crate::limits::CONFIG_ERRORS) of the file, and what compiling found.
    pub errors: Vec<ConfigError>,
    /// How many more there are.
    pub more: usize,
}

impl Rejected {
    /// How many things are wrong.
    #[must_use]
    pub fn count(&self) -> usize {
        self.errors.len() + self.more
    }

    /// The same in words: `2 things are wrong`.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.count() {
            1 => "1 thing is wrong".to_owned(),
            count => format!("{count} things are wrong"),
        }
    }
}

/// A gateway for a file that was read.
///
/// # Errors
/// Anything is wrong with it.
pub(crate) fn start(loaded: &mut Loaded, filters: &Filters) -> Result<Gateway, Rejected> {
    // A file with errors is compiled, too: everything that is wrong is reported at once.
    let config = loaded.config.take().map(Arc::new);
    let log = config.as_ref().and_then(|config| wrong_log(loaded, config));
    let gateway = config.map(|config| Gateway::with_filters(config, filters.clone(), clock::realtime()));
    let problems = gateway.as_ref().map(Gateway::problems).unwrap_or_default();
    match gateway {
        Some(gateway) if is_right(loaded) && problems.is_empty() && log.is_none() => Ok(gateway),
        _ => Err(rejected(loaded, &problems, log)),
    }
}

/// Has a gateway that serves follow a file that was read. `last` is what it serves. Returns the configuration.
///
/// # Errors
/// Anything is wrong with it: the gateway serves on as before.
pub(crate) fn reload(gateway: &Gateway, loaded: &mut Loaded, last: &Config) -> Result<Arc<Config>, Rejected> {
    let log = loaded
        .config
        .as_ref()
        .and_then(|config| wrong_log(loaded, config));
    let now = clock::realtime();
    if let (None, Some(config)) = (&log, loaded.take(Some(last))) {
        let config = Arc::new(config);
        // An address that could not be listened at may be free now.
        if *config == *last && gateway.unheard().is_empty() {
            return Ok(config);
        }
        let replaced = gateway.replace_whole(Arc::clone(&config), now);
        return match replaced {
            Ok(()) => Ok(config),
            Err(problems) => Err(rejected(loaded, &problems, None)),
        };
    }
    let config = loaded.config.take().map(Arc::new);
    let problems = config
        .map(|config| gateway.check(config, now))
        .unwrap_or_default();
    Err(rejected(loaded, &problems, log))
}

fn is_right(loaded: &Loaded) -> bool {
    loaded.errors.is_empty() && loaded.more == 0
}

fn rejected(loaded: &Loaded, problems: &[Problem], log: Option<ConfigError>) -> Rejected {
    let mut errors = loaded.wrong(problems);
    errors.extend(log);
    errors.sort_by_key(|error| error.position);
    Rejected {
        errors,
        more: loaded.more,
    }
}

fn wrong_log(loaded: &Loaded, config: &Config) -> Option<ConfigError> {
    let AccessLog { to, .. } = config.access_log.as_ref()?;
    let LogDestination::File(path) = to else {
        return None;
    };
    let error = appendable(path).err()?;
    Some(loaded.wrong_log(format!("`{}`: {error}", path.display())))
}

/// Whether a log can be appended to this file, or created there.
fn appendable(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).mode(0o640);
    match fs::metadata(path) {
        Ok(status) if status.is_file() => options.open(path).map(drop),
        Ok(status) if status.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // A pipe or a device: opening it may wait for a reader.
        Ok(_) => Ok(()),
        // A link whose file does not exist yet.
        Err(_) if fs::symlink_metadata(path).is_ok() => options.create(true).open(path).map(drop),
        Err(_) => {
            options.create_new(true).open(path)?;
            fs::remove_file(path)
        }
    }
}
