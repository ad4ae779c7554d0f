//! `ringmain tune`: audits the host, plans, applies and reverts changes, and prints the results.
//!
//! Owns output, signals and exit codes; the crate `tune` audits, plans and writes.

mod admin;
mod measure;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ringmain_tune::apply::{self, Event, How, State};
use ringmain_tune::audit::{Finding, Status, Wish, audit};
use ringmain_tune::catalogue::Id;
use ringmain_tune::export;
use ringmain_tune::host::{Asked, Host};
use ringmain_tune::journal::Journal;
use ringmain_tune::plan;
use ringmain_tune::report::{self, Style, json};
use ringmain_tune::root::Root;
use ringmain_tune::{locality, snapshot};

use crate::args::tune::{
    self as args, Apply, ExportFormat, HostArgs, JournalArgs, OutputArgs, ServiceArgs, Tune, TuneCommand,
};
use crate::bench::Interrupt;
use crate::error::CliError;

/// Interval at which `--hold` checks for signals.
const HOLD_POLL: Duration = Duration::from_millis(100);

/// The status without applied changes.
const NOTHING_APPLIED: &str = "No changes are applied.\n";

/// Runs the command.
pub(crate) fn run(args: Tune) -> Result<(), CliError> {
    let Some(command) = args.command else {
        return print_audit(&args);
    };
    match command {
        TuneCommand::Plan {
            service,
            goals,
            output,
        } => print_plan(&service, &goals, output),
        TuneCommand::Apply(args) => apply_plan(&args),
        TuneCommand::Revert {
            journal_args,
            host,
            force,
            forget,
        } => {
            let how = match (force, forget) {
                (true, _) => How::Force,
                (_, true) => How::Forget,
                _ => How::Careful,
            };
            revert_applied(&journal_args, &host, how)
        }
        TuneCommand::Status {
            journal_args,
            host,
            output,
        } => print_status(&journal_args, &host, output),
        TuneCommand::Snapshot { host } => {
            let (root, host) = open_host(&host)?;
            print_data(&json::text(&snapshot::take(&root, &host)))
        }
        TuneCommand::Diff {
            first,
            second,
            output,
        } => print_diff(&first, second.as_deref(), output),
        TuneCommand::Export {
            format,
            image,
            service,
            goals,
            journal_args,
        } => export_plan(format, &image, &service, &goals, &journal_args),
        TuneCommand::Locality {
            service,
            admin,
            output,
        } => print_locality(&service, admin, output),
        TuneCommand::Measure(args) => measure::run(&args),
    }
}

/// A host, audited for a service.
struct AuditedHost {
    root: Root,
    asked: Asked,
    goals: Wish,
    host: Host,
    findings: Vec<Finding>,
}

impl AuditedHost {
    fn new(service: &ServiceArgs, goals: Option<&args::Goals>) -> Result<AuditedHost, CliError> {
        let root = open_sysroot(&service.host)?;
        let asked = service_query(service);
        let goals = goals.map_or_else(default_request, to_request);
        let host = Host::look(&root, &asked).map_err(CliError::other)?;
        let findings = audit(&root, &host, &goals);
        Ok(AuditedHost {
            root,
            asked,
            goals,
            host,
            findings,
        })
    }
}

fn open_sysroot(host_args: &HostArgs) -> Result<Root, CliError> {
    match &host_args.root {
        None => Ok(Root::live()),
        Some(path) => {
            Root::at(path).map_err(|error| CliError::Usage(format!("--root {}: {error}", path.display())))
        }
    }
}

fn open_host(host_args: &HostArgs) -> Result<(Root, Host), CliError> {
    let root = open_sysroot(host_args)?;
    let host = Host::look(&root, &Asked::default()).map_err(CliError::other)?;
    Ok((root, host))
}

fn service_query(service: &ServiceArgs) -> Asked {
    Asked {
        port: service.port,
        pid: service.pid,
        interface: service.interface.clone(),
    }
}

fn default_request() -> Wish {
    Wish {
        profile: args::ProfileName::Throughput.tuner_profile(),
        accept: [].into(),
        steps: [].into(),
    }
}

fn to_request(goals: &args::Goals) -> Wish {
    Wish {
        profile: goals.profile.tuner_profile(),
        accept: goals.accept.iter().copied().collect(),
        steps: goals.step.iter().copied().collect(),
    }
}

fn print_audit(args: &Tune) -> Result<(), CliError> {
    let mut audited = AuditedHost::new(&args.service, Some(&args.goals))?;
    if let Some(id) = args.explain {
        audited.findings.retain(|finding| finding.id == id);
        if args.output.json {
            return print_data(&json::text(&json::step(id)));
        }
        return print_data(&report::explain(id.step(), &audited.findings, terminal_style()));
    }
    let AuditedHost {
        host,
        goals,
        findings,
        ..
    } = &audited;
    print_data(&if args.output.json {
        json::text(&json::audit(host, goals, findings))
    } else {
        report::audit(host, goals, findings, terminal_style())
    })
}

fn print_plan(service: &ServiceArgs, goals: &args::Goals, output: OutputArgs) -> Result<(), CliError> {
    let audited = AuditedHost::new(service, Some(goals))?;
    let AuditedHost {
        host,
        goals,
        findings,
        ..
    } = &audited;
    print_data(&if output.json {
        json::text(&plan::json(host, goals, findings))
    } else {
        plan::text(host, goals, findings, terminal_style())
    })
}

/// Prints the path of packets on each interface of the service.
fn print_locality(
    service: &ServiceArgs,
    admin: Option<SocketAddr>,
    output: OutputArgs,
) -> Result<(), CliError> {
    let audited = AuditedHost::new(service, None)?;
    let accepted = admin.map_or(Ok(Vec::new()), admin::accepted_connections)?;
    let all: Vec<_> = audited
        .host
        .cards()
        .map(|card| locality::look(&audited.root, &audited.host, card, &accepted))
        .collect();
    if output.json {
        return print_data(&json::text(&all));
    }
    if all.is_empty() {
        let why = if audited.host.service.is_local() {
            "the service listens only on loopback"
        } else {
            "no interface except loopback is up"
        };
        return Err(CliError::Other(format!(
            "no interface for the packets of the service: {why}; --interface NAME selects one"
        )));
    }
    let texts: Vec<String> = all
        .iter()
        .map(|one| locality::text(one, terminal_style()))
        .collect();
    print_data(&texts.join("\n"))
}

fn apply_plan(args: &Apply) -> Result<(), CliError> {
    // Before the first change: changes of --hold must be reverted on every signal.
    let interrupt = args.hold.then(Interrupt::install).transpose()?;
    let (root, asked, goals) = (
        open_sysroot(&args.service.host)?,
        service_query(&args.service),
        to_request(&args.goals),
    );
    let mut journal = open_journal(&args.journal_args, &args.service.host)?;
    let applied = apply::apply(&root, &asked, &goals, &mut journal, &mut |event| {
        print_event(event)
    })
    .map_err(CliError::other)?;
    for (step, why) in &applied.failed {
        print_note(&format!("{step}: reverted: {why}"));
    }
    let without = unapplied_steps(&root, &asked, &goals, &applied)?;
    for (step, why) in &without {
        print_note(&format!("{step}: not applied: {why}"));
    }
    let open = journal.entries().iter().filter(|entry| !entry.undone).count();
    let earlier = open.saturating_sub(applied.changed);
    match applied.changed {
        0 if !without.is_empty() => print_note("no setting changed"),
        0 if applied.failed.is_empty() => print_note("no setting changed: the host is as requested"),
        1 => print_note("1 setting changed; ringmain tune revert reverts it"),
        changed => print_note(&format!(
            "{changed} settings changed; ringmain tune revert reverts them"
        )),
    }
    match earlier {
        0 => {}
        1 => print_note("1 change of an earlier run is taken over, and will be reverted with the others"),
        earlier => print_note(&format!(
            "{earlier} changes of an earlier run are taken over, and will be reverted with the others"
        )),
    }
    if let Some(interrupt) = interrupt {
        print_note("held until SIGTERM or Ctrl-C");
        while interrupt.pause(HOLD_POLL) {}
        let host = Host::look(&root, &Asked::default()).map_err(CliError::other)?;
        return revert_journal(&root, &host, &mut journal, How::Careful);
    }
    match applied.failed.len() {
        0 => Ok(()),
        1 => Err(CliError::Other(format!(
            "the step {} was reverted",
            applied.failed[0].0
        ))),
        failed => Err(CliError::Other(format!("{failed} steps were reverted"))),
    }
}

/// Returns the named steps that are not applied, with the reasons; without those that failed, which are reported already.
fn unapplied_steps(
    root: &Root,
    asked: &Asked,
    goals: &Wish,
    applied: &apply::Applied,
) -> Result<Vec<(Id, String)>, CliError> {
    if goals.steps.is_empty() {
        return Ok(Vec::new());
    }
    let host = Host::look(root, asked).map_err(CliError::other)?;
    let findings = audit(root, &host, goals);
    let named = findings.iter().filter(|finding| {
        let failed = applied.failed.iter().any(|(id, _)| *id == finding.id);
        goals.steps.contains(&finding.id) && finding.status != Status::Good && !failed
    });
    Ok(named
        .map(|finding| (finding.id, plan::why_not(finding)))
        .collect())
}

fn open_journal(journal_args: &JournalArgs, host_args: &HostArgs) -> Result<Journal, CliError> {
    if let Some(what) = journal_args.contradiction(host_args) {
        return Err(CliError::Usage(what));
    }
    Journal::open(&journal_args.state).map_err(CliError::other)
}

fn revert_applied(journal_args: &JournalArgs, host_args: &HostArgs, how: How) -> Result<(), CliError> {
    let (root, host) = open_host(host_args)?;
    if let Some(what) = journal_args.contradiction(host_args) {
        return Err(CliError::Usage(what));
    }
    // Without a journal neither the disk nor permissions are needed.
    if Journal::peek(&journal_args.state)
        .map_err(CliError::other)?
        .is_none()
    {
        print_note(&format!("no applied changes in {}", journal_args.state.display()));
        return Ok(());
    }
    let mut journal = open_journal(journal_args, host_args)?;
    revert_journal(&root, &host, &mut journal, how)
}

fn revert_journal(root: &Root, host: &Host, journal: &mut Journal, how: How) -> Result<(), CliError> {
    let reverted =
        apply::undo(root, host, journal, how, &mut |event| print_event(event)).map_err(CliError::other)?;
    if reverted.restarted {
        print_note("the host was restarted since: no change remains, and the journal is closed");
        return Ok(());
    }
    print_note(&format!(
        "{} restored, {} already had the previous value, {} no longer exist",
        reverted.restored, reverted.already, reverted.gone
    ));
    for left in &reverted.left {
        print_note(&format!("{}: {}", left.intent.key, left.why));
    }
    match reverted.left.len() {
        0 => Ok(()),
        1 => Err(CliError::Other(
            "1 setting does not have its previous value".into(),
        )),
        left => Err(CliError::Other(format!(
            "{left} settings do not have their previous values"
        ))),
    }
}

fn print_status(
    journal_args: &JournalArgs,
    host_args: &HostArgs,
    output: OutputArgs,
) -> Result<(), CliError> {
    let (root, host) = open_host(host_args)?;
    let kept_state = Journal::peek(&journal_args.state).map_err(CliError::other)?;
    let Some(found) = kept_state else {
        return print_data(if output.json { "[]\n" } else { NOTHING_APPLIED });
    };
    let restarted = found.boot != host.boot;
    let mut rows = Vec::new();
    let mut text = String::new();
    for entry in found.entries.iter().filter(|entry| !entry.undone) {
        let state = match apply::status(&root, entry) {
            _ if restarted => "lost with the restart".to_owned(),
            State::Holds => "applied".into(),
            State::Before => "previous value".into(),
            State::Changed(now) => format!("changed by others, is {now}"),
            State::InDoubt(now) => format!("uncertain (a run was killed), is {now}"),
            State::Gone => "gone".into(),
            State::Unknown(why) => format!("unknown: {why}"),
        };
        let intent = &entry.intent;
        text.push_str(&format!(
            "{}\n    {} -> {} ({}): {state}\n",
            intent.key, intent.before, intent.wanted, intent.step
        ));
        rows.push(serde_json::json!({
            "step": intent.step, "key": intent.key, "before": intent.before, "wanted": intent.wanted, "state": state,
        }));
    }
    if output.json {
        print_data(&json::text(&rows))
    } else if rows.is_empty() {
        print_data(NOTHING_APPLIED)
    } else {
        print_data(&text)
    }
}

fn print_diff(first: &Path, second: Option<&Path>, output: OutputArgs) -> Result<(), CliError> {
    let read = |path: &Path| -> Result<snapshot::Snapshot, CliError> {
        let wrong = |error: &dyn std::fmt::Display| {
            CliError::Usage(format!(
                "expected a file written by ringmain tune snapshot; {}: {error}",
                path.display()
            ))
        };
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        serde_json::from_str(&text).map_err(|error| wrong(&error))
    };
    let first = read(first)?;
    let second = match second {
        Some(path) => read(path)?,
        None => {
            let (root, host) = open_host(&HostArgs { root: None })?;
            snapshot::take(&root, &host)
        }
    };
    let differences = snapshot::diff(&first, &second);
    print_data(&if output.json {
        json::text(&differences)
    } else {
        snapshot::text(&first, &second, &differences, terminal_style())
    })
}

fn export_plan(
    format: ExportFormat,
    image: &str,
    service: &ServiceArgs,
    goals: &args::Goals,
    journal_args: &JournalArgs,
) -> Result<(), CliError> {
    if format == ExportFormat::Seccomp {
        return print_data(&json::text(&export::seccomp()));
    }
    let audited = AuditedHost::new(service, Some(goals))?;
    let mut plan = plan::plan(&audited.findings);
    // A recorded host does not use the journal of this one.
    if journal_args.contradiction(&service.host).is_none() {
        let found = Journal::peek(&journal_args.state).map_err(CliError::other)?;
        let found = found.filter(|found| found.boot == audited.host.boot);
        plan = plan::with_applied(plan, &found.map_or_else(Vec::new, |found| found.entries));
    }
    if plan.is_empty() {
        return Err(CliError::Other(
            "no changes to export: none planned (ringmain tune plan lists the reasons), and none applied"
                .into(),
        ));
    }
    let command = export::Command {
        wish: &audited.goals,
        asked: &audited.asked,
        plan: &plan,
    };
    print_data(&match format {
        ExportFormat::Sysctl => export::sysctl(&plan),
        ExportFormat::Kubernetes => export::kubernetes(&command, image),
        ExportFormat::Systemd | ExportFormat::Seccomp => {
            let program = std::env::current_exe().ok();
            let program = program.and_then(|path| path.to_str().map(str::to_owned));
            export::systemd(&command, program.as_deref().unwrap_or("/usr/local/bin/ringmain"))
        }
    })
}

/// Prints a change to standard error.
fn print_event(event: &Event) {
    match event {
        Event::Intended(_) | Event::Written(_) => {}
        Event::Verified {
            key,
            before,
            effective,
        } => print_note(&format!("set     {key}: {before} -> {effective}")),
        Event::Undone { key, value } => print_note(&format!("undone  {key}: {value}")),
    }
}

fn print_note(text: &str) {
    crate::bench::to_standard_error(text);
}

fn print_data(text: &str) -> Result<(), CliError> {
    crate::print_output(|out| out.write_all(text.as_bytes()))
}

fn terminal_style() -> Style {
    match crate::bench::terminal_style() {
        ringmain_load::report::text::Style::Plain => Style::Plain,
        ringmain_load::report::text::Style::Terminal => Style::Terminal,
    }
}
