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

use crate::merge::Combined;
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
    let places = config.as_ref().map(|config| wrong_places(loaded, config));
    let places = places.unwrap_or_default();
    let gateway = config.map(|config| Gateway::with_filters(config, filters.clone(), clock::realtime()));
    let problems = gateway.as_ref().map(Gateway::problems).unwrap_or_default();
    match gateway {
        Some(gateway) if is_right(loaded) && problems.is_empty() && places.is_empty() => Ok(gateway),
        _ => Err(rejected(loaded, &problems, places)),
    }
}

/// Has a gateway that serves follow a file that was read. `last` is what it serves. Returns the configuration.
///
/// # Errors
/// Anything is wrong with it: the gateway serves on as before.
pub(crate) fn reload(
    combined: &Combined,
    loaded: &mut Loaded,
    last: &Arc<Config>,
) -> Result<Arc<Config>, Rejected> {
    let places = loaded.config.as_ref().map(|config| wrong_places(loaded, config));
    let places = places.unwrap_or_default();
    let (now, gateway) = (clock::realtime(), combined.gateway());
    let right = places.is_empty().then(|| loaded.take(Some(last)));
    if let Some(config) = right.flatten() {
        let config = Arc::new(config);
        // An address that could not be listened at may be free now.
        if config == *last && gateway.unheard().is_empty() {
            return Ok(Arc::clone(last));
        }
        let replaced = combined.replace_file(config, now);
        return replaced.map_err(|problems| rejected(loaded, &problems, places));
    }
    let config = loaded.config.take().map(Arc::new);
    let problems = config
        .map(|config| gateway.check(config, now))
        .unwrap_or_default();
    Err(rejected(loaded, &problems, places))
}

fn is_right(loaded: &Loaded) -> bool {
    loaded.errors.is_empty() && loaded.more == 0
}

fn rejected(loaded: &Loaded, problems: &[Problem], places: Vec<ConfigError>) -> Rejected {
    let mut errors = loaded.wrong(problems);
    errors.extend(places);
    errors.sort_by_key(|error| error.position);
    Rejected {
        errors,
        more: loaded.more,
    }
}

/// Files and folders that are to be written and cannot be.
fn wrong_places(loaded: &Loaded, config: &Config) -> Vec<ConfigError> {
    let log = wrong_log(loaded, config);
    log.into_iter().chain(wrong_state_dir(loaded, config)).collect()
}

fn wrong_state_dir(loaded: &Loaded, config: &Config) -> Option<ConfigError> {
    let folder = config.push.as_ref()?.state_dir.as_ref()?;
    // One that does not exist is made at the start, with those on its way.
    let existing = folder.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    let probe = existing
        .unwrap_or(folder)
        .join(format!(".ringmain-check-{}", std::process::id()));
    let error = appendable(&probe).err()?;
    Some(loaded.wrong_state_dir(format!("`{}`: {error}", folder.display())))
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
