//! `/demo.Greeter/Greet` on tonic, one Tokio thread. What its generator would make of a .proto file is written by hand.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::codegen::{Service, StdError};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, PartialEq, prost::Message)]
struct Name {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Greeting {
    #[prost(string, tag = "1")]
    text: String,
}

type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

struct Greet;

impl UnaryService<Name> for Greet {
    type Response = Greeting;
    type Future = Boxed<Response<Greeting>, Status>;

    fn call(&mut self, request: Request<Name>) -> Self::Future {
        Box::pin(async move {
            let text = format!("Hello, {}!", request.get_ref().name);
            Ok(Response::new(Greeting { text }))
        })
    }
}

#[derive(Clone)]
struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "demo.Greeter";
}

impl<B> Service<http::Request<B>> for Greeter
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Boxed<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<Greeting, Name>::default());
            Ok(match request.uri().path() {
                "/demo.Greeter/Greet" => grpc.unary(Greet, request).await,
                _ => Status::unimplemented("only Greet").into_http(),
            })
        })
    }
}

fn main() {
    let port: u16 = std::env::var("PORT").ok().and_then(|p| p.parse().ok()).expect("PORT");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    let server = tonic::transport::Server::builder().add_service(Greeter);
    runtime
        .block_on(server.serve(([127, 0, 0, 1], port).into()))
        .expect("serve");
}
