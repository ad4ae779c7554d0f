//! A service being built: its methods with their handlers, and what holds for all of them.

use std::sync::Arc;

use prost::Message;
use ringmain_wire::grpc::{Code, Limits};

use super::call::Call;
use super::messages::Messages;
use super::replies::Replies;
use super::serve::serve;
use super::status::{Result, Status};
use super::translate::translate;
use crate::app::Group;
use crate::reply::Reply;
use crate::request::Request;

/// A service of gRPC, to be added to an application by [`App::grpc`](crate::App::grpc).
///
/// *Handlers* are told the [`Call`] and a message, or are handed [`Messages`]; they return a message, or send [`Replies`]. Each runs as a
/// task of its worker, as any handler that waits: a client that leaves drops it where it waits, and so does a deadline that passes.
///
/// What there is no method for is [`Unimplemented`](Code::Unimplemented).
pub struct Service {
    name: String,
    settings: Settings,
    methods: Vec<(String, Box<Add>)>,
}

/// Adds a method's route at a pattern.
type Add = dyn FnOnce(Group, &str, Arc<Settings>) -> Group;

/// What holds for all methods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) limits: Limits,
    pub(super) compress: bool,
}

impl Service {
    /// A service without methods. `name` is its full name, package and all: `pkg.Greeter`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Service {
        Service {
            name: name.into(),
            settings: Settings {
                limits: Limits::INTERNET,
                compress: false,
            },
            methods: Vec::new(),
        }
    }

    /// Its full name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of a message of a client's, as it comes and inflated; 4 MiB unless set. A longer one ends its call with
    /// [`ResourceExhausted`](Code::ResourceExhausted).
    #[must_use]
    pub fn message_limit(mut self, bytes: u32) -> Service {
        self.settings.limits.message_bytes = bytes;
        self
    }

    /// Has replies compressed for clients that read gzip or deflate, from [`DEFLATE_FROM`](crate::limits::DEFLATE_FROM) bytes on.
    /// Messages of clients may be compressed with or without it.
    #[must_use]
    pub fn compress(mut self) -> Service {
        self.settings.compress = true;
        self
    }

    /// A method with one message each way.
    #[must_use]
    pub fn unary<Q, A, F>(self, method: &str, handler: F) -> Service
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: AsyncFn(&Call<'_>, Q) -> Result<A> + Send + Sync + 'static,
    {
        self.add(method, async move |call: &Call<'_>, reply: &mut Reply<'_>| {
            let message = Messages::new(call).only().await?;
            let answer = handler(call, message).await?;
            answer_with(call, reply, &answer)
        })
    }

    /// A method with one message and any number of replies.
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

    /// A method with any number of messages and one reply. No [rate](crate::Limits::rate_bytes) is asked of such a client.
    #[must_use]
    pub fn client_streaming<Q, A, F>(self, method: &str, handler: F) -> Service
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: AsyncFn(&Call<'_>, &mut Messages<'_, Q>) -> Result<A> + Send + Sync + 'static,
    {
        self.add(method, async move |call: &Call<'_>, reply: &mut Reply<'_>| {
            call.request().wait_patiently();
            let answer = handler(call, &mut Messages::new(call)).await?;
            answer_with(call, reply, &answer)
        })
    }

    /// A method with any number of messages and of replies, in whatever order. No [rate](crate::Limits::rate_bytes) is asked of such a
    /// client. By HTTP/1.1 many clients read no reply before they have sent all.
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
            call.request().wait_patiently();
            handler(call, &mut Messages::new(call), &mut Replies::new(call, reply)).await
        })
    }

    fn add<F>(mut self, method: &str, run: F) -> Service
    where
        F: AsyncFn(&Call<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
    {
        let add = move |group: Group, pattern: &str, settings: Arc<Settings>| {
            group.post_streamed(
                pattern,
                async move |request: &Request<'_>, reply: &mut Reply<'_>| {
                    serve(&settings, request, reply, &run).await
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
                let run = async |_: &Call<'_>, _: &mut Reply<'_>| {
                    let what = format!("there is no method `{}` here", request.path());
                    Err(Status::new(Code::Unimplemented, what))
                };
                serve(&unknown, request, reply, run).await
            },
        );
        self.methods.into_iter().fold(group, |group, (method, add)| {
            add(group, &format!("/{name}/{method}"), Arc::clone(&settings))
        })
    }
}

/// The only reply of a call that has one.
fn answer_with(call: &Call<'_>, reply: &mut Reply<'_>, message: &impl Message) -> Result {
    let coder = &call.request().local.grpc;
    coder.borrow_mut().encode(message, call.outgoing, reply.body())
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service {} of {} methods", self.name, self.methods.len())
    }
}
