//! `ringmain run FILE`: the gateway that a configuration file describes, with the settings of the command line.

use std::path::Path;

use ringmain_control::edge::{Edge, EdgeError, EdgeSettings, ServeObserver};
use ringmain_engine::{Addr, Engine, Report};
use ringmain_sys::inherit::Inherited;
use ringmain_sys::signal::Signals;

use super::{Monitor, counts, introduce};
use crate::args::Run;
use crate::failure::Failure;
use crate::stats::Ticker;

impl From<EdgeError> for Failure {
    fn from(error: EdgeError) -> Failure {
        match error {
            EdgeError::Unreadable(why) => Failure::Usage(why.to_string()),
            // The same code as for a command line that cannot be carried out: starting it again changes nothing.
            EdgeError::Rejected(why) => Failure::Usage(why),
            EdgeError::Other(why) => Failure::Other(why),
        }
    }
}

/// Serves until a signal; returns the last counts.
pub(super) fn serve(
    args: &Run,
    path: &Path,
    inherited: Vec<Inherited>,
    signals: &Signals,
) -> Result<String, Failure> {
    let settings = EdgeSettings {
        engine: args.config(),
        listen: args.listen_options(),
        connections_per_address: args.http.per_address,
        patience: args.http.patience.map(|time| time.0),
        version: env!("CARGO_PKG_VERSION"),
    };
    let mut watching = Watching {
        args,
        is_first: true,
        monitor: Monitor {
            unsaid: None,
            page: None,
            redirect: None,
            ticker: args.output.stats.map(|every| Ticker::new(every.0)),
        },
    };
    let edge = Edge::from_file(path).settings(settings);
    let served = edge.serve(inherited, signals, &mut watching)?;
    Ok(counts(&served.report, ("requests", served.requests)))
}

/// Says what is to be said while it serves.
struct Watching<'a> {
    args: &'a Run,
    is_first: bool,
    monitor: Monitor,
}

impl ServeObserver for Watching<'_> {
    fn on_engine_ready(&mut self, engine: &Engine) {
        introduce(self.args, engine);
    }

    fn on_tick(&mut self, report: &Report, addrs: &[Addr], requests: u64) {
        if std::mem::replace(&mut self.is_first, false) {
            self.monitor.unsaid = Some(addrs.to_vec());
        }
        self.monitor.look(report, || ("requests", requests));
    }
}
