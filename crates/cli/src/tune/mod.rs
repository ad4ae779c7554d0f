//! `ringmain tune`: looks at the host, plans, applies, takes back, and says what it did.
//!
//! What is found, planned and written is the tuner's; here it meets the terminal, signals and exit codes.

mod admin;
mod measure;

use std::fs;
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

/// How often it is seen whether what is held is to be taken back.
const HOLD_POLL: Duration = Duration::from_millis(100);

/// Carries it out.
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
            output,
            image,
            service,
            goals,
            journal_args,
        } => export_plan(output, &image, &service, &goals, &journal_args),
        TuneCommand::Locality {
            service,
            admin,
            output,
        } => {
            let audited = AuditedHost::new(&service, None)?;
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
                let why = match audited.host.service.is_local() {
                    true => "the service listens on loopback alone",
                    false => "there is no interface but loopback that is up",
                };
                return Err(CliError::Other(format!(
                    "no interface brings the service's packets: {why}; --interface NAME draws one all the same"
                )));
            }
            let texts: Vec<String> = all
                .iter()
                .map(|one| locality::text(one, terminal_style()))
                .collect();
            print_data(&texts.join("\n"))
        }
        TuneCommand::Measure(args) => measure::run(&args),
    }
}

/// A host that was looked at for a service.
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
    print_data(&match args.output.json {
        true => json::text(&json::audit(host, goals, findings)),
        false => report::audit(host, goals, findings, terminal_style()),
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
    print_data(&match output.json {
        true => json::text(&plan::json(host, goals, findings)),
        false => plan::text(host, goals, findings, terminal_style()),
    })
}

fn apply_plan(args: &Apply) -> Result<(), CliError> {
    // Before anything is written: what is held must be taken back whatever comes.
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
        print_note(&format!("{step}: taken back: {why}"));
    }
    let without = unapplied_steps(&root, &asked, &goals, &applied)?;
    for (step, why) in &without {
        print_note(&format!("{step}: not applied: {why}"));
    }
    let open = journal.entries().iter().filter(|entry| !entry.undone).count();
    let earlier = open.saturating_sub(applied.changed);
    match applied.changed {
        0 if !without.is_empty() => print_note("nothing is changed"),
        0 if applied.failed.is_empty() => print_note("nothing to change: the host is as wished"),
        1 => print_note("1 setting is changed; ringmain tune revert takes it back"),
        changed => print_note(&format!(
            "{changed} settings are changed; ringmain tune revert takes them back"
        )),
    }
    match earlier {
        0 => {}
        1 => print_note("1 change of an earlier run is taken over: it is taken back with the rest"),
        earlier => print_note(&format!(
            "{earlier} changes of an earlier run are taken over: they are taken back with the rest"
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
            "the step {} is taken back",
            applied.failed[0].0
        ))),
        failed => Err(CliError::Other(format!("{failed} steps are taken back"))),
    }
}

/// The steps that were named and that the host is without all the same, and why. Those that failed have been told.
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
    // Without a journal nothing is asked of the disk, nor of the user's rights.
    if Journal::peek(&journal_args.state)
        .map_err(CliError::other)?
        .is_none()
    {
        print_note(&format!(
            "nothing is applied that {} knows of",
            journal_args.state.display()
        ));
        return Ok(());
    }
    let mut journal = open_journal(journal_args, host_args)?;
    revert_journal(&root, &host, &mut journal, how)
}

fn revert_journal(root: &Root, host: &Host, journal: &mut Journal, how: How) -> Result<(), CliError> {
    let reverted =
        apply::undo(root, host, journal, how, &mut |event| print_event(event)).map_err(CliError::other)?;
    if reverted.restarted {
        print_note("the host was started anew since: nothing of it is left, and the journal is closed");
        return Ok(());
    }
    print_note(&format!(
        "{} restored, {} as before already, {} gone",
        reverted.restored, reverted.already, reverted.gone
    ));
    for left in &reverted.left {
        print_note(&format!("{}: {}", left.intent.key, left.why));
    }
    match reverted.left.len() {
        0 => Ok(()),
        1 => Err(CliError::Other("1 setting is not as it was before".into())),
        left => Err(CliError::Other(format!(
            "{left} settings are not as they were before"
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
        return match output.json {
            true => print_data("[]\n"),
            false => print_data("Nothing is applied.\n"),
        };
    };
    let restarted = found.boot != host.boot;
    let mut rows = Vec::new();
    let mut text = String::new();
    for entry in found.entries.iter().filter(|entry| !entry.undone) {
        let state = match apply::status(&root, entry) {
            _ if restarted => "gone with the restart".to_owned(),
            State::Holds => "holds".into(),
            State::Before => "as before".into(),
            State::Changed(now) => format!("changed by somebody, is {now}"),
            State::InDoubt(now) => format!("in doubt (a run was killed), is {now}"),
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
    match output.json {
        true => print_data(&json::text(&rows)),
        false if rows.is_empty() => print_data("Nothing is applied.\n"),
        false => print_data(&text),
    }
}

fn print_diff(first: &Path, second: Option<&Path>, output: OutputArgs) -> Result<(), CliError> {
    let read = |path: &Path| -> Result<snapshot::Snapshot, CliError> {
        let wrong = |error: &dyn std::fmt::Display| {
            CliError::Usage(format!(
                "expected a file of ringmain tune snapshot; {}: {error}",
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
    print_data(&match output.json {
        true => json::text(&differences),
        false => snapshot::text(&first, &second, &differences, terminal_style()),
    })
}

fn export_plan(
    output: ExportFormat,
    image: &str,
    service: &ServiceArgs,
    goals: &args::Goals,
    journal_args: &JournalArgs,
) -> Result<(), CliError> {
    if output == ExportFormat::Seccomp {
        return print_data(&json::text(&export::seccomp()));
    }
    let audited = AuditedHost::new(service, Some(goals))?;
    let mut plan = plan::plan(&audited.findings);
    // A recorded host without a journal of its own has none.
    if journal_args.contradiction(&service.host).is_none() {
        let found = Journal::peek(&journal_args.state).map_err(CliError::other)?;
        let found = found.filter(|found| found.boot == audited.host.boot);
        plan = plan::with_applied(plan, &found.map_or_else(Vec::new, |found| found.entries));
    }
    if plan.is_empty() {
        return Err(CliError::Other(
            "there is nothing to export: nothing is planned (ringmain tune plan says why), and nothing is applied".into(),
        ));
    }
    let command = export::Command {
        wish: &audited.goals,
        asked: &audited.asked,
        plan: &plan,
    };
    print_data(&match output {
        ExportFormat::Sysctl => export::sysctl(&plan),
        ExportFormat::Kubernetes => export::kubernetes(&command, image),
        ExportFormat::Systemd | ExportFormat::Seccomp => {
            let program = std::env::current_exe().ok();
            let program = program.and_then(|path| path.to_str().map(str::to_owned));
            export::systemd(&command, program.as_deref().unwrap_or("/usr/local/bin/ringmain"))
        }
    })
}

/// What happens, on standard error.
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
