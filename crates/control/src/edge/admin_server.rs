//! The administration's own engine: one worker that the gateway's load does not reach.
//!
//! A successor's may have to wait for its address: the process before it gives it up once the listeners are handed over.

use std::convert::Infallible;
use std::sync::Arc;

use ringmain_engine::{Addr, Config, Engine, Running};
use ringmain_sys::inherit::Inherited;
use ringmain_web::{App, Site};

use super::{EdgeError, Settings, other};
use crate::limits::{ADMIN_CONNECTIONS, ADMIN_GRACE, ADMIN_RECEIVE_BUFFERS};

/// The administration, if there is one.
pub(super) struct Administration {
    addrs: Vec<Addr>,
    /// What it is called in the log.
    name: &'static str,
    site: Arc<Site>,
    running: Option<Running<Infallible>>,
    /// Its addresses were not free at the start.
    late: bool,
}

impl Administration {
    /// Starts an application of it. `may_wait`: there is a process before this one, which may still be at its addresses.
    pub(super) fn start(
        settings: &Settings,
        (name, addrs): (&'static str, &[Addr]),
        inherited: Vec<Inherited>,
        app: App,
        may_wait: bool,
    ) -> Result<Administration, EdgeError> {
        let mut administration = Administration {
            addrs: addrs.to_vec(),
            name,
            site: app.build().map_err(other)?,
            running: None,
            late: false,
        };
        if let Err(failure) = administration.open(settings, inherited) {
            if !may_wait {
                return Err(failure);
            }
            administration.late = true;
        }
        Ok(administration)
    }

    /// Called again and again: a successor takes over here, too.
    pub(super) fn look<M: Send + 'static>(&mut self, settings: &Settings, gateway: &Running<M>) {
        if gateway.has_successor() {
            self.late = false;
            self.running = None;
        } else if self.late && self.open(settings, Vec::new()).is_ok() {
            self.late = false;
        }
    }

    fn open(&mut self, settings: &Settings, inherited: Vec<Inherited>) -> Result<(), EdgeError> {
        let config = Config {
            workers: Some(1),
            max_connections: Some(ADMIN_CONNECTIONS),
            grace: ADMIN_GRACE,
            pin: false,
            steer: None,
            sqpoll: None,
            receive_buffers: ADMIN_RECEIVE_BUFFERS,
            blocking_threads: 1,
            ..settings.engine.clone()
        };
        let mut engine = Engine::new(config).map_err(other)?;
        let mut opened = engine.inherit(inherited).map_err(other)?;
        for addr in self
            .addrs
            .iter()
            .filter(|addr| !opened.contains(addr))
            .collect::<Vec<_>>()
        {
            opened.push(engine.listen(addr, &settings.listen).map_err(other)?);
        }
        let site = Arc::clone(&self.site);
        let running = engine.start(move |start| site.server(start)).map_err(other)?;
        for addr in opened {
            log::info!("{} at {addr}", self.name);
        }
        self.running = Some(running);
        Ok(())
    }
}
