//! The command line of `ringmain bench compare`.

use clap::{ArgAction, Args};

use super::values::{File, Named};
use super::{Client, Load, Request, Results, Started, Tls};

/// Compare two or more targets in alternating rounds.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Named targets: old=http://127.0.0.1:8080/ new=http://127.0.0.1:8081/
    ///
    /// The first one is the baseline
    #[arg(value_name = "NAME=URL", required = true, num_args = 2..)]
    pub(crate) targets: Vec<Named>,
    #[command(flatten)]
    pub(crate) load: Load,
    #[command(flatten)]
    pub(crate) request: Request,
    #[command(flatten)]
    pub(crate) tls: Tls,
    #[command(flatten)]
    pub(crate) client: Client,
    #[command(flatten)]
    pub(crate) server: UnderTest,
    #[command(flatten)]
    pub(crate) results: Results,
}

/// The servers under test, if they run on this host.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server under test (on this host)")]
pub(crate) struct UnderTest {
    /// Shell command that starts the server of target NAME; its CPU time and memory are measured
    #[arg(long, value_name = "NAME=COMMAND", action = ArgAction::Append)]
    pub(crate) server: Vec<Named>,

    /// Process of the server of target NAME; its CPU time and memory are measured
    #[arg(long, value_name = "NAME=PID", action = ArgAction::Append)]
    pub(crate) server_pid: Vec<Named>,

    #[command(flatten)]
    pub(crate) started: Started,
}

impl Compare {
    /// Describes the first conflict between valid options, if any. Does not check them against the targets.
    pub(crate) fn contradiction(&self) -> Option<String> {
        self.load
            .contradiction(false, self.request.grpc.grpc)
            .or_else(|| self.check_names())
            .or_else(|| self.request.contradiction())
            .or_else(|| self.client.contradiction(&self.load))
            .or_else(|| self.server.started.contradiction(!self.server.server.is_empty()))
            .or_else(|| self.results.contradiction(None::<&File>))
    }

    fn check_names(&self) -> Option<String> {
        let names: Vec<&str> = self.targets.iter().map(|Named(name, _)| name.as_str()).collect();
        if let Some(name) = first_duplicate(&names) {
            return Some(format!(
                "two targets have the name `{name}`: expected different names"
            ));
        }
        let of = |list: &[Named]| list.iter().map(|Named(name, _)| name.clone()).collect::<Vec<_>>();
        let servers = [of(&self.server.server), of(&self.server.server_pid)].concat();
        let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
        if let Some(name) = servers.iter().find(|name| !names.contains(name)) {
            let names = names.join(", ");
            return Some(format!(
                "--server and --server-pid: expected the name of a target, one of {names}; found `{name}`"
            ));
        }
        first_duplicate(&servers)
            .map(|name| format!("the target `{name}` has two servers: expected one --server or --server-pid"))
    }
}

fn first_duplicate<'a>(names: &[&'a str]) -> Option<&'a str> {
    let mut rest = names;
    while let Some((name, others)) = rest.split_first() {
        if others.contains(name) {
            return Some(name);
        }
        rest = others;
    }
    None
}
