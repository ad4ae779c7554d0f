//! gRPC services as a part of an application, with messages of `prost` (feature `grpc`): native gRPC where trailers reach the
//! client, gRPC-Web in binary and as text over any HTTP version.
//!
//! ```text
//! POST /pkg.Service/Method ─▶ hooks ─▶ serve ─▶ Call ─▶ Messages ─▶ handler ─▶ Replies ─▶ status in trailers
//!                                 what fails is translated: 401 becomes UNAUTHENTICATED
//! ```
//!
//! Owns calls from their head to their status. Knows no framing of HTTP: bodies are read and written as by any other handler.

mod call;
mod compression;
mod error_status;
mod health;
mod messages;
mod reflection;
mod replies;
mod serve;
mod service;
mod status;

pub use prost;
pub use ringmain_wire::grpc::{Code, Dialect};

pub use self::call::Call;
pub(crate) use self::compression::Compressor;
pub use self::health::HealthService;
pub use self::messages::Messages;
pub use self::reflection::{DescriptorError, ReflectionService};
pub use self::replies::Replies;
pub use self::service::Service;
pub use self::status::{Result, Status};
use crate::app::{App, Group};

impl App {
    /// Adds a gRPC service: its methods are ordinary routes, with the application's hooks around them.
    ///
    /// ```no_run
    /// use ringmain_web::grpc::{self, Call, Service};
    /// use ringmain_web::{App, Exit};
    ///
    /// #[derive(Clone, PartialEq, grpc::prost::Message)]
    /// #[prost(prost_path = "grpc::prost")]
    /// struct Name {
    ///     #[prost(string, tag = "1")]
    ///     name: String,
    /// }
    ///
    /// async fn greet(_: &Call<'_>, name: Name) -> grpc::Result<Name> {
    ///     Ok(Name { name: format!("Hello, {}!", name.name) })
    /// }
    ///
    /// fn main() -> Exit {
    ///     App::new().grpc(Service::new("demo.Greeter").unary("Greet", greet)).run("127.0.0.1:8080")
    /// }
    /// ```
    #[must_use]
    pub fn grpc(self, service: Service) -> App {
        self.group("", |group| service.add_to(group))
    }
}

impl Group {
    /// Adds a gRPC service, with the group's hooks around it. gRPC clients know no path prefix: that of the group should be empty.
    #[must_use]
    pub fn grpc(self, service: Service) -> Group {
        self.group("", |group| service.add_to(group))
    }
}
