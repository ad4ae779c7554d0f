//! The administration's own engine: one worker that the gateway's load does not reach.
//!
//! A successor's may have to wait for its address: the process before it gives it up once the listeners are handed over.

use std::convert::Infallible;
use std::sync::Arc;

use ringmain_control::admin::Admin;
use ringmain_engine::{Addr, Config, Engine, Running};
use ringmain_sys::inherit::Inherited;
use ringmain_web::Site;

use crate::args::Run;
use crate::failure::Failure;
use crate::limits::{ADMIN_CONNECTIONS, ADMIN_GRACE, ADMIN_RECEIVE_BUFFERS};

/// The administration, if there is one.
pub(super) struct Administration {
    addrs: Vec<Addr>,
    site: Arc<Site>,
    running: Option<Running<Infallible>>,
    /// Its addresses were not free at the start.
    late: bool,
}

impl Administration {
    /// Starts it. `may_wait`: there is a process before this one, which may still be at its addresses.
    pub(super) fn start(
        args: &Run,
        addrs: &[Addr],
        inherited: Vec<Inherited>,
        admin: &Admin,
        may_wait: bool,
    ) -> Result<Administration, Failure> {
        let site = admin.app().build().map_err(Failure::other)?;
        let mut administration = Administration {
            addrs: addrs.to_vec(),
            site,
            running: None,
            late: false,
        };
        if let Err(failure) = administration.open(args, inherited) {
            if !may_wait {
                return Err(failure);
            }
            administration.late = true;
        }
        Ok(administration)
    }

    /// Called again and again: a successor takes over here, too.
    pub(super) fn look<M: Send + 'static>(&mut self, args: &Run, gateway: &Running<M>) {
        if gateway.has_successor() {
            self.late = false;
            self.running = None;
        } else if self.late && self.open(args, Vec::new()).is_ok() {
            self.late = false;
        }
    }

    fn open(&mut self, args: &Run, inherited: Vec<Inherited>) -> Result<(), Failure> {
        let config = Config {
            workers: Some(1),
            max_connections: Some(ADMIN_CONNECTIONS),
            grace: ADMIN_GRACE,
            pin: false,
            steer: None,
            sqpoll: None,
            receive_buffers: ADMIN_RECEIVE_BUFFERS,
            blocking_threads: 1,
            ..args.config()
        };
        let mut engine = Engine::new(config).map_err(Failure::other)?;
        let mut opened = engine.inherit(inherited).map_err(Failure::other)?;
        for addr in self
            .addrs
            .iter()
            .filter(|addr| !opened.contains(addr))
            .collect::<Vec<_>>()
        {
            opened.push(
                engine
                    .listen(addr, &args.listen_options())
                    .map_err(Failure::other)?,
            );
        }
        let site = Arc::clone(&self.site);
        let running = engine
            .start(move |start| site.server(start))
            .map_err(Failure::other)?;
        for addr in opened {
            log::info!("administration at {addr}");
        }
        self.running = Some(running);
        Ok(())
    }
}
