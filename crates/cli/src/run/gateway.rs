//! `ringmain run FILE`: the gateway that a configuration file describes.

use std::path::Path;
use std::sync::Arc;

use ringmain_control::admin::{Admin, Board};
use ringmain_control::file::{self, Reading};
use ringmain_control::follow::{Begun, Control};
use ringmain_engine::{Addr, Engine, Listeners, Running};
use ringmain_gateway::Gateway;
use ringmain_sys::clock;
use ringmain_sys::inherit::Inherited;
use ringmain_sys::signal::Signals;
use ringmain_web::Limits;

use super::admin::Administration;
use super::logs::{self, Rotated};
use super::{Monitor, counts, introduce};
use crate::args::{Http, Run};
use crate::failure::Failure;
use crate::stats::Ticker;

/// Serves until a signal; returns the last counts.
pub(super) fn serve(
    args: &Run,
    path: &Path,
    mut inherited: Vec<Inherited>,
    signals: &Signals,
) -> Result<String, Failure> {
    let (gateway, begun) = load(path)?;
    let config = Arc::clone(&begun.config);
    let mut settings = args.config();
    settings.max_connections = config.limits.connections;
    settings.grace = config.limits.drain;
    let mut engine = Engine::new(settings).map_err(Failure::other)?;
    introduce(args, &engine);
    let may_wait = !inherited.is_empty();
    let addrs = open(args, &mut engine, &mut inherited, &gateway.addrs())?;
    let for_admin = config.admin.as_ref().map(|admin| {
        let wanted = |addr: &Addr| admin.addresses.contains(addr);
        (&admin.addresses, take(&mut inherited, wanted))
    });
    say_unused(&inherited);
    let mut app = gateway.app().limits(limits(gateway.limits(), &args.http));
    if let Some(wanted) = &config.access_log {
        app = app.access_log(logs::open(wanted)?);
    }
    let site = app.build().map_err(Failure::other)?;
    let control = Control::start(gateway.clone(), begun)
        .map_err(|error| Failure::Other(format!("cannot start the control thread: {error}")))?;
    let control = Arc::new(control);
    let board = Board::default();
    let mut listening = Some(gateway.clone());
    let mut administration = None;
    if let Some((addrs, inherited)) = for_admin {
        let (control, site, board) = (Arc::clone(&control), Arc::clone(&site), board.clone());
        let admin = Admin::new(gateway, control, site, board, env!("CARGO_PKG_VERSION"));
        administration = Some(Administration::start(args, addrs, inherited, &admin, may_wait)?);
    }
    let mut monitor = Monitor {
        unsaid: Some(addrs),
        page: None,
        redirect: None,
        ticker: args.output.stats.map(|every| Ticker::new(every.0)),
    };
    let (mut hangups, mut rotated) = (0, Rotated::default());
    let served = Arc::clone(&site);
    let requests = || ("requests", site.stats().totals().requests());
    let observe = |running: &Running<_>| {
        if let Some(gateway) = listening.take() {
            follow(&gateway, &control, running.listeners(), args);
        }
        if std::mem::replace(&mut hangups, running.hangups()) != running.hangups() {
            control.read_anew();
        }
        rotated.follow(running, &site);
        let report = running.report();
        board.put(report.clone(), running.is_draining());
        if board.take_drain() {
            running.shut_down();
        }
        if let Some(administration) = &mut administration {
            administration.look(args, running);
        }
        monitor.look(&report, requests);
    };
    let summary = engine
        .run_observed(signals, move |start| served.server(start), observe)
        .map_err(Failure::other)?;
    logs::finish(&site);
    Ok(counts(&summary.report, requests()))
}

/// Has listeners follow the configuration from now on.
fn follow(gateway: &Gateway, control: &Control, listeners: Listeners, args: &Run) {
    let missed = gateway.listen_by(listeners, args.listen_options());
    if missed {
        control.read_anew();
    }
}

fn say_unused(inherited: &[Inherited]) {
    for unused in inherited {
        log::warn!(
            "handed over to this process and closed: {}, where the configuration does not listen",
            unused.addr
        );
    }
}

/// Reads a file, and says what is wrong with it; what is not can be served.
fn load(path: &Path) -> Result<(Gateway, Begun), Failure> {
    let Reading {
        mut loaded,
        text,
        print,
    } = file::read(path).map_err(|error| Failure::Usage(error.to_string()))?;
    let name = path.display();
    let Some((config, _)) = loaded.take(None) else {
        loaded.errors.iter().for_each(|error| log::error!("{error}"));
        return Err(Failure::Other(format!("{name}: nothing of it can be served")));
    };
    let config = Arc::new(config);
    let gateway = Gateway::new(Arc::clone(&config), clock::realtime());
    let wrong = loaded.wrong(&gateway.problems());
    for error in &wrong {
        log::error!("{error}");
    }
    for outcome in loaded.outcomes() {
        log::warn!("{name}: {outcome}");
    }
    if gateway.addrs().is_empty() {
        return Err(Failure::Other(format!("{name}: nothing to listen at is left")));
    }
    for addr in gateway.unheard() {
        log::warn!("{name}: nothing is listened for at {addr}");
    }
    let begun = Begun {
        path: path.to_owned(),
        print,
        text,
        config,
        wrong,
    };
    Ok((gateway, begun))
}

/// What a file has no word for.
fn limits(mut limits: Limits, http: &Http) -> Limits {
    limits.connections_per_address = http.per_address.or(limits.connections_per_address);
    if let Some(time) = http.patience {
        limits.patience = Some(time.0);
    }
    limits
}

/// Opens addresses in their order, or takes listeners over that were handed to this process.
fn open(
    args: &Run,
    engine: &mut Engine,
    inherited: &mut Vec<Inherited>,
    addrs: &[Addr],
) -> Result<Vec<Addr>, Failure> {
    // Exact ones first: what port 0 may stand for must not be taken from them.
    let mut takes: Vec<Vec<Inherited>> = addrs
        .iter()
        .map(|wanted| take(inherited, |found| found == wanted))
        .collect();
    for (wanted, taken) in addrs.iter().zip(&mut takes) {
        if let (Addr::Inet(wanted), true) = (wanted, taken.is_empty())
            && wanted.port() == 0
        {
            let fits = |found: &Addr| matches!(found, Addr::Inet(found) if found.ip() == wanted.ip());
            let found = inherited.iter().map(|it| it.addr.clone()).find(fits);
            *taken = take(inherited, |addr| Some(addr) == found.as_ref());
        }
    }
    let mut opened = Vec::with_capacity(addrs.len());
    for (wanted, taken) in addrs.iter().zip(takes) {
        if taken.is_empty() {
            opened.push(
                engine
                    .listen(wanted, &args.listen_options())
                    .map_err(Failure::other)?,
            );
            continue;
        }
        let found = engine.inherit(taken).map_err(Failure::other)?;
        found
            .iter()
            .for_each(|addr| log::info!("handed over to this process: {addr}"));
        opened.extend(found);
    }
    Ok(opened)
}

/// Those listeners that are wanted.
fn take(inherited: &mut Vec<Inherited>, wanted: impl Fn(&Addr) -> bool) -> Vec<Inherited> {
    inherited.extract_if(.., |it| wanted(&it.addr)).collect()
}
