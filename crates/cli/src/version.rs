//! What `--version` says beyond the number: the engine that works here, and the kernel. For bug reports.

use ringmain_engine::Config;
use ringmain_engine::features::Features;
use ringmain_engine::probe;
use ringmain_sys::sysctl;

/// Version, engine and kernel, a line each. Tries the engines out, which takes some milliseconds.
pub(crate) fn long_version() -> String {
    format!(
        "{}\nengine: {}\nkernel: Linux {} on {}",
        env!("CARGO_PKG_VERSION"),
        engine_text(),
        sysctl::read("kernel.osrelease").unwrap_or_else(|| "of unknown version".into()),
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
        Err(error) => format!("not to be found out: {error}"),
    }
}

/// Names as a person reads them; without spaces no terminal breaks the line well.
pub(crate) fn feature_list(features: Features) -> String {
    match features.to_string() {
        none if none.is_empty() => "no feature".into(),
        names => names.replace(',', ", "),
    }
}
