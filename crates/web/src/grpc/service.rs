//! A service under construction: its methods with their handlers, and their common settings.

use std::sync::Arc;

use prost::Message;
use ringmain_wire::grpc::{Code, Limits};

use super::call::Call;
use super::error_status::translate;
use super::messages::Messages;
use super::replies::Replies;
use super::serve::serve;
use super::status::{Result, Status};
use crate::app::Group;
use crate::http::reply::Reply;
use crate::http::request::Request;

/// A gRPC service, added to an application by [`App::grpc`](crate::App::grpc).
///
/// *Handlers* receive the [`Call`] and a message, or [`Messages`]; they return a message, or send [`Replies`]. Each runs as a task
/// of its worker, as any asynchronous handler: it is dropped at its current await when the client disconnects or its deadline
/// expires.
///
/// A call of an unknown method ends with [`Unimplemented`](Code::Unimplemented).
pub struct Service {
    name: String,
    settings: ServiceSettings,
    methods: Vec<(String, Box<Add>)>,
}

/// Adds a method's route at a pattern.
type Add = dyn FnOnce(Group, &str, Arc<ServiceSettings>) -> Group;

/// Settings common to the methods.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceSettings {
    pub(super) limits: Limits,
    pub(super) call_message_limit: Option<CallMessageLimit>,
    pub(super) compress: bool,
}

/// Returns the limit on the messages of a call.
type CallMessageLimit = fn(&Request<'_>) -> crate::Result<u32>;

impl Service {
    /// Returns a service without methods. `name` is its full name with the package: `pkg.Greeter`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Service {
        Service {
            name: name.into(),
            settings: ServiceSettings {
                limits: Limits::INTERNET,
                call_message_limit: None,
                compress: false,
            },
            methods: Vec::new(),
        }
    }

    /// Returns its full name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the limit on a client message in bytes, both as received and after inflation. Default: 4 MiB. A longer message ends its
    /// call with [`ResourceExhausted`](Code::ResourceExhausted).
    #[must_use]
    pub fn message_limit(mut self, bytes: u32) -> Service {
        self.settings.limits.message_bytes = bytes;
        self
    }

    /// Sets a function for the limit on the messages of each call, for a limit that changes while the server runs. The limit of
    /// [`Service::message_limit`] remains the highest one. An error ends the call.
    #[must_use]
    pub fn call_message_limit(mut self, limit: fn(&Request<'_>) -> crate::Result<u32>) -> Service {
        self.settings.call_message_limit = Some(limit);
        self
    }

    /// Compresses replies from [`MIN_DEFLATE_BYTES`](crate::limits::MIN_DEFLATE_BYTES) bytes on for clients that accept gzip or deflate.
    /// Client messages may be compressed regardless.
    #[must_use]
    pub fn compress(mut self) -> Service {
        self.settings.compress = true;
        self
    }

    /// Adds a method with one message in each direction.
    #[must_use]
    pub fn unary<Q, A, F>(self, method: &str, handler: F) -> Service
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: AsyncFn(&Call<'_>, Q) -> Result<A> + Send + Sync + 'static,
    {
        self.add(method, async move |call: &Call<'_>, reply: &mut Reply<'_>| {
            let message = Messages::new(call).only().await?;
            let response = handler(call, message).await?;
            answer_with(call, reply, &response)
        })
    }

    /// Adds a method with one message and any number of replies.
    #[must_use]
    pub fn server_streaming<Q, A, F>(self, method: &str, handler: F) -> Service
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: AsyncFn(&Call<'_>, Q, &mut Replies<'_, '_, A>) -> Result + Send + Sync + 'static,
    {
        self.add(method, async move |call: &Call<'_>, reply: &mut Reply<'_>| {
            let message = Messages::new(call).only().await?;
            handler(call, message, &mut Replies::new(call, reply)).await
        })
    }

    /// Adds a method with any number of messages and one reply. Its clients are exempt from the minimum
    /// [rate](crate::Limits::rate_bytes).
    #[must_use]
    pub fn client_streaming<Q, A, F>(self, method: &str, handler: F) -> Service
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: AsyncFn(&Call<'_>, &mut Messages<'_, Q>) -> Result<A> + Send + Sync + 'static,
    {
        self.add(method, async move |call: &Call<'_>, reply: &mut Reply<'_>| {
            call.request().disable_body_rate();
            let response = handler(call, &mut Messages::new(call)).await?;
            answer_with(call, reply, &response)
        })
    }

    /// Adds a method with any number of messages and of replies, in any order. Its clients are exempt from the minimum
    /// [rate](crate::Limits::rate_bytes). Over HTTP/1.1 many clients read no reply before they have sent all messages.
    #[must_use]
    pub fn bidi<Q, A, F>(self, method: &str, handler: F) -> Service
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: AsyncFn(&Call<'_>, &mut Messages<'_, Q>, &mut Replies<'_, '_, A>) -> Result
            + Send
            + Sync
            + 'static,
    {
        self.add(method, async move |call: &Call<'_>, reply: &mut Reply<'_>| {
            call.request().disable_body_rate();
            handler(call, &mut Messages::new(call), &mut Replies::new(call, reply)).await
        })
    }

    fn add<F>(mut self, method: &str, method_handler: F) -> Service
    where
        F: AsyncFn(&Call<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
    {
        let add = move |group: Group, pattern: &str, settings: Arc<ServiceSettings>| {
            group.post_streamed(
                pattern,
                async move |request: &Request<'_>, reply: &mut Reply<'_>| {
                    serve(&settings, request, reply, &method_handler).await
                },
            )
        };
        self.methods.push((method.into(), Box::new(add)));
        self
    }

    /// Adds its routes.
    pub(super) fn add_to(self, group: Group) -> Group {
        let name = self.name;
        let settings = Arc::new(self.settings);
        let unknown = self.settings;
        let group = group.after(translate).post_streamed(
            &format!("/{name}/{{method}}"),
            async move |request: &Request<'_>, reply: &mut Reply<'_>| {
                let method_handler = async |_: &Call<'_>, _: &mut Reply<'_>| {
                    let message = format!("unknown method `{}`", request.path());
                    Err(Status::new(Code::Unimplemented, message))
                };
                serve(&unknown, request, reply, method_handler).await
            },
        );
        self.methods.into_iter().fold(group, |group, (method, add)| {
            add(group, &format!("/{name}/{method}"), Arc::clone(&settings))
        })
    }
}

/// Writes the only reply of a unary response.
fn answer_with(call: &Call<'_>, reply: &mut Reply<'_>, message: &impl Message) -> Result {
    let coder = &call.request().worker.grpc;
    coder.borrow_mut().encode(message, call.outgoing, reply.body())
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service {} of {} methods", self.name, self.methods.len())
    }
}
