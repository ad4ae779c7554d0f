//! A client for tests: runs an application without sockets, in virtual time.
//!
//! Owns the client's side. The server's side is the real one, on the engine's simulated back-end: a test observes exactly the bytes
//! that a client would receive. Not part of a product build.
//!
//! The response of a handler that sleeps for an hour arrives at once, and a test never waits in real time: virtual time advances
//! only while the client waits, and by [`TestClient::advance`].
//!
//! ```
//! use ringmain_web::testing::TestClient;
//! use ringmain_web::{App, Reply, Request, Result};
//!
//! fn hello(req: &Request, reply: &mut Reply) -> Result {
//!     reply.text(format!("Hello, {}!\n", req.param("name")?))
//! }
//!
//! let mut client = TestClient::new(App::new().get("/hello/{name}", hello)).unwrap();
//! let reply = client.get("/hello/world").header("accept", "text/plain").send();
//! assert_eq!(reply.status(), 200);
//! assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
//! assert_eq!(reply.text(), "Hello, world!\n");
//! client.finish().unwrap();
//! ```

mod connection;
mod reader;
mod reply;
mod request;
mod server_state;
mod simulation;
mod socket;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub use ringmain_sim::{Fault, Plan};

pub use self::connection::{ConnectionEnd, RawConnection};
pub use self::reader::ReplyReader;
pub use self::reply::{StreamedReply, TestReply};
pub use self::request::TestRequest;
pub use self::server_state::{ServerInternals, counted_addresses};
use self::simulation::Simulation;
pub use self::socket::{TestEvent, TestSocket, TestUpgrade};
use crate::App;
use crate::AppError;
use crate::CompiledApp;

/// The client's error: no response in time, a broken connection, a response that violates the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TestError(pub(crate) String);

/// The simulated world in which an application is tested.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Determines every choice that a network leaves open: delays, orders, faults. The same seed and the same calls give the same
    /// run.
    pub seed: u64,
    /// The faults of the network; [`Plan::calm`] has none.
    pub plan: Plan,
    /// The number of workers; each connection is assigned to one.
    pub workers: usize,
    /// The virtual time that a call of the client waits before it fails.
    pub timeout: Duration,
    /// The time for which requests may continue after [`TestClient::shut_down`].
    pub grace: Duration,
    /// The time over which that spreads the ends of connections whose clients reconnect.
    pub drain_spread: Duration,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            seed: 0,
            plan: Plan::calm(),
            workers: 1,
            timeout: Duration::from_secs(60),
            grace: Duration::from_secs(5),
            drain_spread: Duration::from_millis(2500),
        }
    }
}

/// A client of an application under test. Requests are sent one after another over one connection, which is reopened when the
/// application closes it; [`TestClient::raw`] opens more.
pub struct TestClient {
    simulation: Rc<RefCell<Simulation>>,
    connection: Option<RawConnection>,
}

impl TestClient {
    /// Starts an application in a world without faults.
    ///
    /// # Errors
    /// The application cannot be built.
    pub fn new(app: App) -> Result<TestClient, AppError> {
        TestClient::with(app, Setup::default())
    }

    /// Starts an application in a world that splits reads, shortens writes and adds delays, as determined by `seed`, but loses
    /// nothing.
    ///
    /// # Errors
    /// As [`TestClient::new`].
    pub fn with_seed(app: App, seed: u64) -> Result<TestClient, AppError> {
        let plan = [
            Fault::CutRead,
            Fault::ReceiveStops,
            Fault::ShortSend,
            Fault::HeldSend,
            Fault::LateCompletion,
            Fault::AtOnce,
        ];
        let plan = plan
            .into_iter()
            .fold(Plan::calm(), |plan, fault| plan.with(fault, 200));
        let setup = Setup {
            seed,
            plan,
            ..Setup::default()
        };
        TestClient::with(app, setup)
    }

    /// Starts an application in a world of the test's choice.
    ///
    /// # Errors
    /// As [`TestClient::new`].
    pub fn with(app: App, setup: Setup) -> Result<TestClient, AppError> {
        let simulation = Simulation::new(app.build()?, setup);
        Ok(TestClient {
            simulation: Rc::new(RefCell::new(simulation)),
            connection: None,
        })
    }

    /// Starts a GET request; nothing happens before it is sent.
    pub fn get(&mut self, target: &str) -> TestRequest<'_> {
        self.request("GET", target)
    }

    /// Starts a HEAD request.
    pub fn head(&mut self, target: &str) -> TestRequest<'_> {
        self.request("HEAD", target)
    }

    /// Starts a POST request.
    pub fn post(&mut self, target: &str) -> TestRequest<'_> {
        self.request("POST", target)
    }

    /// Starts a PUT request.
    pub fn put(&mut self, target: &str) -> TestRequest<'_> {
        self.request("PUT", target)
    }

    /// Starts a PATCH request.
    pub fn patch(&mut self, target: &str) -> TestRequest<'_> {
        self.request("PATCH", target)
    }

    /// Starts a DELETE request.
    pub fn delete(&mut self, target: &str) -> TestRequest<'_> {
        self.request("DELETE", target)
    }

    /// Starts a request with any method.
    pub fn request(&mut self, method: &str, target: &str) -> TestRequest<'_> {
        TestRequest::new(self, method, target)
    }

    /// Starts a WebSocket on a connection of its own; nothing happens before it is opened.
    pub fn ws(&mut self, target: &str) -> TestUpgrade<'_> {
        TestUpgrade::new(self, target)
    }

    /// Opens a separate connection for tests of the protocol: the test sends every byte.
    ///
    /// # Panics
    /// If no listener is open.
    #[track_caller]
    #[must_use]
    pub fn raw(&mut self) -> RawConnection {
        RawConnection::open(&self.simulation, None).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens a connection from an address of the test's choice; by default each connection has another address.
    ///
    /// # Panics
    /// As [`TestClient::raw`].
    #[track_caller]
    #[must_use]
    pub fn raw_from(&mut self, from: SocketAddr) -> RawConnection {
        RawConnection::open(&self.simulation, Some(from)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Advances virtual time by `span`: timers fire, deadlines pass, bytes arrive.
    pub fn advance(&mut self, span: Duration) {
        self.simulation.borrow_mut().advance(span);
    }

    /// Returns the virtual time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.simulation.borrow().elapsed()
    }

    /// Returns the application, with its limits and counters.
    #[must_use]
    pub fn app(&self) -> Arc<CompiledApp> {
        Arc::clone(self.simulation.borrow().app())
    }

    /// Returns the number of connections that the application holds.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.simulation.borrow().connections()
    }

    /// Returns the number of running requests of asynchronous handlers.
    #[must_use]
    pub fn running(&self) -> usize {
        self.simulation.borrow().running()
    }

    /// Announces a shutdown, as a termination signal does with a delay, which [`TestClient::shut_down`] ends.
    pub fn begin_drain_delay(&mut self) {
        self.simulation.borrow_mut().begin_drain_delay();
    }

    /// Begins a graceful shutdown, as a termination signal does.
    pub fn shut_down(&mut self) {
        self.simulation.borrow_mut().shut_down();
    }

    /// Returns true if the shutdown is complete.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.simulation.borrow().is_shut_down()
    }

    /// Shuts down, waits for the end and checks that the application has released everything.
    ///
    /// # Errors
    /// The shutdown does not complete in time, or something is still held: the error lists it.
    pub fn finish(mut self) -> Result<(), TestError> {
        self.connection = None;
        self.simulation.borrow_mut().finish()
    }

    /// Returns the connection for the next request.
    pub(crate) fn connection(&mut self) -> Result<&mut RawConnection, TestError> {
        if self.connection.as_ref().is_none_or(|open| !open.is_usable()) {
            self.connection = None;
            self.connection = Some(RawConnection::open(&self.simulation, None)?);
        }
        Ok(self.connection.as_mut().expect("it was just opened"))
    }

    /// Opens a separate connection, for a response that is read in chunks.
    pub(crate) fn separate(&self) -> Result<RawConnection, TestError> {
        RawConnection::open(&self.simulation, None)
    }

    /// Drops the connection after a response that closes it; `broken`: no response arrived, and the connection is reset.
    pub(crate) fn forget_connection(&mut self, broken: bool) {
        if let Some(mut connection) = self.connection.take()
            && broken
        {
            connection.reset();
        }
    }
}

impl std::fmt::Debug for TestClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TestClient after {:?}", self.elapsed())
    }
}
