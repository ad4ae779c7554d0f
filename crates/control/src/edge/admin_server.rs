//! The administration's own engine: one worker that the gateway's load does not reach.
//!
//! A successor's may have to wait for its address: the process before it gives it up once the listeners are handed over.

use std::convert::Infallible;
use std::sync::Arc;

use ringmain_engine::{Addr, Config, Engine, Running};
use ringmain_sys::inherit::Inherited;
use ringmain_web::{App, CompiledApp};

use super::{EdgeError, EdgeSettings, other};
use crate::limits::{ADMIN_CONNECTIONS, ADMIN_GRACE, ADMIN_RECEIVE_BUFFERS};

/// A listener of the administration, as configured.
pub(super) struct AdminListener<'c> {
    /// Its name in the log.
    pub(super) name: &'static str,
    pub(super) addrs: &'c [Addr],
    /// The sockets of `addrs` that the previous process has handed over.
    pub(super) inherited: Vec<Inherited>,
}

/// An engine of the administration.
pub(super) struct AdminServer {
    addrs: Vec<Addr>,
    /// The name in the log.
    name: &'static str,
    site: Arc<CompiledApp>,
    running: Option<Running<Infallible>>,
    /// Its addresses were not free at the start.
    is_waiting: bool,
}

impl AdminServer {
    /// Starts an application of the administration. `can_wait`: its addresses may still be in use by the previous process.
    pub(super) fn start(
        settings: &EdgeSettings,
        listener: AdminListener<'_>,
        app: App,
        can_wait: bool,
    ) -> Result<AdminServer, EdgeError> {
        let mut server = AdminServer {
            addrs: listener.addrs.to_vec(),
            name: listener.name,
            site: app.build().map_err(other)?,
            running: None,
            is_waiting: false,
        };
        if let Err(failure) = server.open(settings, listener.inherited) {
            if !can_wait {
                return Err(failure);
            }
            server.is_waiting = true;
        }
        Ok(server)
    }

    /// Retries busy addresses, and stops when a successor takes over. Called four times a second.
    pub(super) fn poll<M: Send + 'static>(&mut self, settings: &EdgeSettings, gateway: &Running<M>) {
        if gateway.has_successor() {
            self.is_waiting = false;
            self.running = None;
        } else if self.is_waiting && self.open(settings, Vec::new()).is_ok() {
            self.is_waiting = false;
        }
    }

    fn open(&mut self, settings: &EdgeSettings, inherited: Vec<Inherited>) -> Result<(), EdgeError> {
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
