//! `ringmain run FILE`: the gateway of a configuration file, with the settings of the command line.

use std::path::Path;

use ringmain_control::edge::{Edge, EdgeError, EdgeSettings, ServeObserver};
use ringmain_engine::{Addr, Engine, Report};
use ringmain_sys::inherit::Inherited;
use ringmain_sys::signal::Signals;

use super::{StatusLog, format_counts, log_program, log_startup};
use crate::args::Run;
use crate::error::CliError;
use crate::stats::IntervalTimer;

impl From<EdgeError> for CliError {
    fn from(error: EdgeError) -> CliError {
        match error {
            EdgeError::Unreadable(why) => CliError::unreadable(&why),
            // The exit code of a wrong command line: a restart would fail again.
            EdgeError::Rejected(why) => CliError::Usage(why),
            EdgeError::Other(why) => CliError::Other(why),
        }
    }
}

/// Serves until a signal; returns the final counters.
pub(super) fn serve(
    args: &Run,
    path: &Path,
    inherited: Vec<Inherited>,
    signals: &Signals,
) -> Result<String, CliError> {
    let settings = EdgeSettings {
        engine: args.engine_config(),
        listen: args.listen_options(),
        connections_per_address: args.http.per_address,
        patience: args.http.queue_delay_limit(),
        version: env!("CARGO_PKG_VERSION"),
    };
    let mut watching = GatewayWatch {
        args,
        is_first: true,
        status_log: StatusLog {
            unreported: None,
            page: None,
            redirect: None,
            timer: args.output.stats.map(|every| IntervalTimer::new(every.0)),
        },
    };
    let edge = Edge::from_file(path).settings(settings);
    let served = edge.serve(inherited, signals, &mut watching)?;
    Ok(format_counts(&served.report, ("requests", served.requests)))
}

/// Logs addresses and counters while the gateway serves.
struct GatewayWatch<'a> {
    args: &'a Run,
    is_first: bool,
    status_log: StatusLog,
}

impl ServeObserver for GatewayWatch<'_> {
    fn on_file_read(&mut self) {
        log_program(self.args);
    }

    fn on_engine_ready(&mut self, engine: &Engine) {
        log_startup(self.args, engine);
    }

    fn on_tick(&mut self, report: &Report, addrs: &[Addr], requests: u64) {
        if std::mem::replace(&mut self.is_first, false) {
            self.status_log.unreported = Some(addrs.to_vec());
        }
        self.status_log.report(report, || ("requests", requests));
    }
}
