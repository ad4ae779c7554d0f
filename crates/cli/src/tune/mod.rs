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

use crate::args::tune::{self as args, Apply, Exported, Form, HostAt, Kept, Of, Tune, TuneCommand};
use crate::bench::Interrupt;
use crate::error::Failure;

/// How often it is seen whether what is held is to be taken back.
const HOLD_LOOK: Duration = Duration::from_millis(100);

/// Carries it out.
pub(crate) fn run(args: Tune) -> Result<(), Failure> {
    let Some(command) = args.command else {
        return report(&args);
    };
    match command {
        TuneCommand::Plan { of, wish, form } => plan(&of, &wish, form),
        TuneCommand::Apply(args) => apply(&args),
        TuneCommand::Revert {
            kept,
            host,
            force,
            forget,
        } => {
            let how = match (force, forget) {
                (true, _) => How::Force,
                (_, true) => How::Forget,
                _ => How::Careful,
            };
            revert(&kept, &host, how)
        }
        TuneCommand::Status { kept, host, form } => status(&kept, &host, form),
        TuneCommand::Snapshot { host } => {
            let (root, host) = simple(&host)?;
            output(&json::text(&snapshot::take(&root, &host)))
        }
        TuneCommand::Diff { first, second, form } => diff(&first, second.as_deref(), form),
        TuneCommand::Export {
            form,
            image,
            of,
            wish,
            kept,
        } => exported(form, &image, &of, &wish, &kept),
        TuneCommand::Locality { of, admin, form } => {
            let looked = Looked::new(&of, None)?;
            let accepted = admin.map_or(Ok(Vec::new()), admin::accepted)?;
            let all: Vec<_> = looked
                .host
                .cards()
                .map(|card| locality::look(&looked.root, &looked.host, card, &accepted))
                .collect();
            if form.json {
                return output(&json::text(&all));
            }
            if all.is_empty() {
                let why = match looked.host.service.is_local() {
                    true => "the service listens on loopback alone",
                    false => "there is no interface but loopback that is up",
                };
                return Err(Failure::Other(format!(
                    "no interface brings the service's packets: {why}; --interface NAME draws one all the same"
                )));
            }
            let texts: Vec<String> = all.iter().map(|one| locality::text(one, style())).collect();
            output(&texts.join("\n"))
        }
        TuneCommand::Measure(args) => measure::run(&args),
    }
}

/// A host that was looked at for a service.
struct Looked {
    root: Root,
    asked: Asked,
    wish: Wish,
    host: Host,
    findings: Vec<Finding>,
}

impl Looked {
    fn new(of: &Of, wish: Option<&args::Wish>) -> Result<Looked, Failure> {
        let root = open(&of.host)?;
        let asked = asked(of);
        let wish = wish.map_or_else(default_wish, read_wish);
        let host = Host::look(&root, &asked).map_err(Failure::other)?;
        let findings = audit(&root, &host, &wish);
        Ok(Looked {
            root,
            asked,
            wish,
            host,
            findings,
        })
    }
}

fn open(at: &HostAt) -> Result<Root, Failure> {
    match &at.root {
        None => Ok(Root::live()),
        Some(path) => {
            Root::at(path).map_err(|error| Failure::Usage(format!("--root {}: {error}", path.display())))
        }
    }
}

fn simple(at: &HostAt) -> Result<(Root, Host), Failure> {
    let root = open(at)?;
    let host = Host::look(&root, &Asked::default()).map_err(Failure::other)?;
    Ok((root, host))
}

fn asked(of: &Of) -> Asked {
    Asked {
        port: of.port,
        pid: of.pid,
        interface: of.interface.clone(),
    }
}

fn default_wish() -> Wish {
    Wish {
        profile: args::ProfileName::Throughput.profile(),
        accept: [].into(),
        steps: [].into(),
    }
}

fn read_wish(wish: &args::Wish) -> Wish {
    Wish {
        profile: wish.profile.profile(),
        accept: wish.accept.iter().copied().collect(),
        steps: wish.step.iter().copied().collect(),
    }
}

fn report(args: &Tune) -> Result<(), Failure> {
    let mut looked = Looked::new(&args.of, Some(&args.wish))?;
    if let Some(id) = args.explain {
        looked.findings.retain(|finding| finding.id == id);
        if args.form.json {
            return output(&json::text(&json::step(id)));
        }
        return output(&report::explain(id.step(), &looked.findings, style()));
    }
    let Looked {
        host, wish, findings, ..
    } = &looked;
    output(&match args.form.json {
        true => json::text(&json::audit(host, wish, findings)),
        false => report::audit(host, wish, findings, style()),
    })
}

fn plan(of: &Of, wish: &args::Wish, form: Form) -> Result<(), Failure> {
    let looked = Looked::new(of, Some(wish))?;
    let Looked {
        host, wish, findings, ..
    } = &looked;
    output(&match form.json {
        true => json::text(&plan::json(host, wish, findings)),
        false => plan::text(host, wish, findings, style()),
    })
}

fn apply(args: &Apply) -> Result<(), Failure> {
    // Before anything is written: what is held must be taken back whatever comes.
    let interrupt = args.hold.then(Interrupt::listen).transpose()?;
    let (root, asked, wish) = (open(&args.of.host)?, asked(&args.of), read_wish(&args.wish));
    let mut journal = journal(&args.kept, &args.of.host)?;
    let applied =
        apply::apply(&root, &asked, &wish, &mut journal, &mut |event| told(event)).map_err(Failure::other)?;
    for (step, why) in &applied.failed {
        say(&format!("{step}: taken back: {why}"));
    }
    let without = without(&root, &asked, &wish, &applied)?;
    for (step, why) in &without {
        say(&format!("{step}: not applied: {why}"));
    }
    let open = journal.entries().iter().filter(|entry| !entry.undone).count();
    let earlier = open.saturating_sub(applied.changed);
    match applied.changed {
        0 if !without.is_empty() => say("nothing is changed"),
        0 if applied.failed.is_empty() => say("nothing to change: the host is as wished"),
        1 => say("1 setting is changed; ringmain tune revert takes it back"),
        changed => say(&format!(
            "{changed} settings are changed; ringmain tune revert takes them back"
        )),
    }
    match earlier {
        0 => {}
        1 => say("1 change of an earlier run is taken over: it is taken back with the rest"),
        earlier => say(&format!(
            "{earlier} changes of an earlier run are taken over: they are taken back with the rest"
        )),
    }
    if let Some(interrupt) = interrupt {
        say("held until SIGTERM or Ctrl-C");
        while interrupt.pause(HOLD_LOOK) {}
        let host = Host::look(&root, &Asked::default()).map_err(Failure::other)?;
        return take_back(&root, &host, &mut journal, How::Careful);
    }
    match applied.failed.len() {
        0 => Ok(()),
        1 => Err(Failure::Other(format!(
            "the step {} is taken back",
            applied.failed[0].0
        ))),
        failed => Err(Failure::Other(format!("{failed} steps are taken back"))),
    }
}

/// The steps that were named and that the host is without all the same, and why. Those that failed have been told.
fn without(
    root: &Root,
    asked: &Asked,
    wish: &Wish,
    applied: &apply::Applied,
) -> Result<Vec<(Id, String)>, Failure> {
    if wish.steps.is_empty() {
        return Ok(Vec::new());
    }
    let host = Host::look(root, asked).map_err(Failure::other)?;
    let findings = audit(root, &host, wish);
    let named = findings.iter().filter(|finding| {
        let failed = applied.failed.iter().any(|(id, _)| *id == finding.id);
        wish.steps.contains(&finding.id) && finding.status != Status::Good && !failed
    });
    Ok(named
        .map(|finding| (finding.id, plan::why_not(finding)))
        .collect())
}

fn journal(kept: &Kept, at: &HostAt) -> Result<Journal, Failure> {
    if let Some(what) = kept.contradiction(at) {
        return Err(Failure::Usage(what));
    }
    Journal::open(&kept.state).map_err(Failure::other)
}

fn revert(kept: &Kept, at: &HostAt, how: How) -> Result<(), Failure> {
    let (root, host) = simple(at)?;
    if let Some(what) = kept.contradiction(at) {
        return Err(Failure::Usage(what));
    }
    // Without a journal nothing is asked of the disk, nor of the user's rights.
    if Journal::peek(&kept.state).map_err(Failure::other)?.is_none() {
        say(&format!(
            "nothing is applied that {} knows of",
            kept.state.display()
        ));
        return Ok(());
    }
    let mut journal = journal(kept, at)?;
    take_back(&root, &host, &mut journal, how)
}

fn take_back(root: &Root, host: &Host, journal: &mut Journal, how: How) -> Result<(), Failure> {
    let reverted = apply::undo(root, host, journal, how, &mut |event| told(event)).map_err(Failure::other)?;
    if reverted.restarted {
        say("the host was started anew since: nothing of it is left, and the journal is closed");
        return Ok(());
    }
    say(&format!(
        "{} restored, {} as before already, {} gone",
        reverted.restored, reverted.already, reverted.gone
    ));
    for left in &reverted.left {
        say(&format!("{}: {}", left.intent.key, left.why));
    }
    match reverted.left.len() {
        0 => Ok(()),
        1 => Err(Failure::Other("1 setting is not as it was before".into())),
        left => Err(Failure::Other(format!(
            "{left} settings are not as they were before"
        ))),
    }
}

fn status(kept: &Kept, at: &HostAt, form: Form) -> Result<(), Failure> {
    let (root, host) = simple(at)?;
    let kept_state = Journal::peek(&kept.state).map_err(Failure::other)?;
    let Some(found) = kept_state else {
        return match form.json {
            true => output("[]\n"),
            false => output("Nothing is applied.\n"),
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
    match form.json {
        true => output(&json::text(&rows)),
        false if rows.is_empty() => output("Nothing is applied.\n"),
        false => output(&text),
    }
}

fn diff(first: &Path, second: Option<&Path>, form: Form) -> Result<(), Failure> {
    let read = |path: &Path| -> Result<snapshot::Snapshot, Failure> {
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::Usage(format!(
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
            let (root, host) = simple(&HostAt { root: None })?;
            snapshot::take(&root, &host)
        }
    };
    let differences = snapshot::diff(&first, &second);
    output(&match form.json {
        true => json::text(&differences),
        false => snapshot::text(&first, &second, &differences, style()),
    })
}

fn exported(form: Exported, image: &str, of: &Of, wish: &args::Wish, kept: &Kept) -> Result<(), Failure> {
    if form == Exported::Seccomp {
        return output(&json::text(&export::seccomp()));
    }
    let looked = Looked::new(of, Some(wish))?;
    let mut plan = plan::plan(&looked.findings);
    // A recorded host without a journal of its own has none.
    if kept.contradiction(&of.host).is_none() {
        let found = Journal::peek(&kept.state).map_err(Failure::other)?;
        let found = found.filter(|found| found.boot == looked.host.boot);
        plan = plan::with_applied(plan, &found.map_or_else(Vec::new, |found| found.entries));
    }
    if plan.is_empty() {
        return Err(Failure::Other(
            "there is nothing to export: nothing is planned (ringmain tune plan says why), and nothing is applied".into(),
        ));
    }
    let command = export::Command {
        wish: &looked.wish,
        asked: &looked.asked,
        plan: &plan,
    };
    output(&match form {
        Exported::Sysctl => export::sysctl(&plan),
        Exported::Kubernetes => export::kubernetes(&command, image),
        Exported::Systemd | Exported::Seccomp => {
            let program = std::env::current_exe().ok();
            let program = program.and_then(|path| path.to_str().map(str::to_owned));
            export::systemd(&command, program.as_deref().unwrap_or("/usr/local/bin/ringmain"))
        }
    })
}

/// What happens, on standard error.
fn told(event: &Event) {
    match event {
        Event::Intended(_) | Event::Written(_) => {}
        Event::Verified {
            key,
            before,
            effective,
        } => say(&format!("set     {key}: {before} -> {effective}")),
        Event::Undone { key, value } => say(&format!("undone  {key}: {value}")),
    }
}

fn say(text: &str) {
    crate::bench::to_standard_error(text);
}

fn output(text: &str) -> Result<(), Failure> {
    crate::print(|out| out.write_all(text.as_bytes()))
}

fn style() -> Style {
    match crate::bench::style() {
        ringmain_load::report::text::Style::Plain => Style::Plain,
        ringmain_load::report::text::Style::Terminal => Style::Terminal,
    }
}
