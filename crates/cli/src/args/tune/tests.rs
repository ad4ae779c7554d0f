//! Table tests of the flags of `ringmain tune`.

use std::ffi::OsString;

use ringmain_tune::catalogue::{Accept, Id};

use super::*;
use crate::args::{Cli, Command};

fn read(line: &str) -> Result<Tune, String> {
    let words = line.split(' ').map(OsString::from).collect();
    match Cli::parse_args(words).map_err(|error| error.to_string())?.command {
        Some(Command::Tune(tune)) => Ok(*tune),
        other => panic!("{other:?}"),
    }
}

#[test]
fn steps_and_accepted_risks_are_parsed() {
    let tune =
        read("ringmain tune --step xps --step irq-affinity --accept noqueue --profile latency").unwrap();
    assert_eq!(tune.goals.step, [Id::Xps, Id::IrqAffinity]);
    assert_eq!(tune.goals.accept, [Accept::Noqueue]);
    assert_eq!(tune.goals.profile, ProfileName::Latency);
}

#[test]
fn unknown_values_are_refused_with_the_known_ones() {
    let error = read("ringmain tune --step turbo").unwrap_err();
    assert!(
        error.contains("irq-affinity") && error.contains("turbo"),
        "{error}"
    );
    let error = read("ringmain tune --accept everything").unwrap_err();
    assert!(error.contains("mitigations-off"), "{error}");
    assert!(read("ringmain tune --port 0").is_err());
    assert!(read("ringmain tune revert --force --forget").is_err());
}

#[test]
fn commands_are_parsed() {
    let tune = read("ringmain tune apply --hold --state /x --port 80").unwrap();
    let Some(TuneCommand::Apply(apply)) = tune.command else {
        panic!("{tune:?}");
    };
    assert!(apply.hold && apply.service.port == Some(80) && apply.journal_args.state.ends_with("x"));
    for line in [
        "plan --json",
        "revert",
        "status",
        "snapshot",
        "diff a b",
        "export --as systemd",
        "locality",
    ] {
        assert!(
            read(&format!("ringmain tune {line}")).unwrap().command.is_some(),
            "{line}"
        );
    }
    assert!(
        read("ringmain tune measure :8080/ -c 8 --rounds 5 --html l.html")
            .unwrap()
            .command
            .is_some()
    );
}
