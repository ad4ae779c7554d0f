//! The long output of `--version`, for bug reports: engine and kernel of this host.

use ringmain_engine::Config;
use ringmain_engine::features::Features;
use ringmain_engine::probe;
use ringmain_sys::sysctl;

/// Returns version, engine and kernel, one per line. Probes the engines, which takes some milliseconds.
pub(crate) fn long_version() -> String {
    format!(
        "{}\nengine: {}\nkernel: Linux {} on {}",
        env!("CARGO_PKG_VERSION"),
        engine_text(),
        sysctl::read("kernel.osrelease").unwrap_or_else(|| "(unknown version)".into()),
        std::env::consts::ARCH,
    )
}

fn engine_text() -> String {
    match probe::probe(&Config::default()) {
        Ok(found) if found.uring => format!("uring with {}", feature_list(found.features)),
        Ok(found) => match found.why_not {
            Some(why_not) => format!("epoll; {why_not}"),
            None => "epoll".into(),
        },
        Err(error) => format!("unknown: {error}"),
    }
}

/// Returns the names of features, separated by commas and spaces.
pub(crate) fn feature_list(features: Features) -> String {
    match features.to_string() {
        none if none.is_empty() => "no features".into(),
        names => names.replace(',', ", "),
    }
}
