//! gRPC services: `cargo run --release --example grpc`, then
//!
//! ```text
//! printf '\0\0\0\0\5\n\3you' | curl -s -H 'Content-Type: application/grpc-web' --data-binary @- \
//!     http://127.0.0.1:8080/demo.Greeter/Greet | xxd
//! ```
//!
//! or any gRPC-Web client. prost-build, with protox instead of protoc, generates messages from .proto files; here they are
//! written by hand. A hook allows cross-origin requests.

use std::time::Duration;

use ringmain::grpc::{self, Call, Code, HealthService, Messages, Replies, Service, Status};
use ringmain::{App, Exit, Flow, Reply, Request, Result};

#[derive(Clone, PartialEq, grpc::prost::Message)]
#[prost(prost_path = "grpc::prost")]
struct Name {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, grpc::prost::Message)]
#[prost(prost_path = "grpc::prost")]
struct Greeting {
    #[prost(string, tag = "1")]
    text: String,
}

fn greeting(name: &str) -> Greeting {
    Greeting {
        text: format!("Hello, {name}!"),
    }
}

/// A unary method.
async fn greet(call: &Call<'_>, message: Name) -> grpc::Result<Greeting> {
    if message.name.is_empty() {
        return Err(Status::new(
            Code::InvalidArgument,
            "name: expected some text, found none",
        ));
    }
    call.add_trailer("x-letters", message.name.chars().count().to_string())?;
    Ok(greeting(&message.name))
}

/// A server-streaming method: runs until the deadline, until the client disconnects, or until shutdown.
async fn repeat(call: &Call<'_>, message: Name, replies: &mut Replies<'_, '_, Greeting>) -> grpc::Result {
    let cx = call.request().cx();
    while !cx.is_draining() {
        replies.send(&greeting(&message.name)).await?;
        cx.sleep(Duration::from_millis(200)).await;
    }
    Err(Status::new(Code::Unavailable, "the server is shutting down"))
}

/// A bidirectional method: responds to each message before it reads the next.
async fn talk(
    _: &Call<'_>,
    messages: &mut Messages<'_, Name>,
    replies: &mut Replies<'_, '_, Greeting>,
) -> grpc::Result {
    while let Some(message) = messages.next().await? {
        replies.send(&greeting(&message.name)).await?;
    }
    Ok(())
}

/// Allows cross-origin requests of one origin (CORS): responds to preflights, and exposes the gRPC fields.
fn cross_origin(req: &Request, reply: &mut Reply) -> Result<Flow> {
    if req.header("Origin") != Some("http://localhost:3000") {
        return Ok(Flow::Continue);
    }
    reply.header("Access-Control-Allow-Origin", "http://localhost:3000")?;
    reply.header(
        "Access-Control-Expose-Headers",
        "grpc-status, grpc-message, grpc-status-details-bin",
    )?;
    reply.header("Vary", "Origin")?;
    if req.method().as_str() != "OPTIONS" {
        return Ok(Flow::Continue);
    }
    reply.header("Access-Control-Allow-Methods", "POST")?;
    reply.header(
        "Access-Control-Allow-Headers",
        "content-type, grpc-timeout, x-grpc-web, x-user-agent",
    )?;
    reply.header("Access-Control-Max-Age", "7200")?;
    reply.no_content()?;
    Ok(Flow::Stop)
}

fn main() -> Exit {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let health = HealthService::new();
    health.set("demo.Greeter", true);
    let greeter = Service::new("demo.Greeter")
        .unary("Greet", greet)
        .server_streaming("Repeat", repeat)
        .bidi("Talk", talk)
        .compress();
    App::new()
        .before(cross_origin)
        .grpc(greeter)
        .grpc(health.service())
        .run(&addr)
}
