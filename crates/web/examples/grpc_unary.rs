//! The server that `bench/h2.py` compares with tonic and grpc-go: one unary method, one worker.
//!
//! `grpc_unary ADDR uring|epoll`.

use ringmain_engine::{Choice, Config};
use ringmain_web::grpc::{self, Call, Service};
use ringmain_web::{App, Exit};

/// As in `ringmain` itself, and in the peers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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

async fn greet(_: &Call<'_>, message: Name) -> grpc::Result<Greeting> {
    Ok(Greeting {
        text: format!("Hello, {}!", message.name),
    })
}

fn main() -> Exit {
    let mut args = std::env::args().skip(1);
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let engine = match args.next().as_deref() {
        None => Choice::Auto,
        Some("uring") => Choice::Uring,
        Some("epoll") => Choice::Epoll,
        Some(other) => return Exit::Failure(format!("expected uring or epoll, found {other}")),
    };
    let config = Config {
        engine,
        workers: Some(1),
        ..Config::default()
    };
    App::new()
        .grpc(Service::new("demo.Greeter").unary("Greet", greet))
        .run_with(&addr, config)
}
