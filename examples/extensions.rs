//! A service for each interface by which the gateway's policies query others: `cargo run --release --example extensions`, then
//! `authz: {to: "http://127.0.0.1:9000", path: /verify}`, and with `to: h2c://127.0.0.1:9000`: `authz` with `grpc: true`,
//! `rate_limit_service`, `ext_proc`.
//!
//! They admit each request, and set `x-user` on it: the least that a service does, which `bench/extensions.py` measures. Messages have the
//! field numbers of Envoy's, as far as they are read or written.

use ringmain::grpc::{self, Call, Messages, Replies, Service, prost::Message};
use ringmain::{App, Exit, Reply, Request, Result};

/// A message whose fields are not read.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct Unread {}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct Header {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(bytes = "vec", tag = "3")]
    raw_value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct HeaderOption {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct CheckResponse {
    #[prost(message, optional, tag = "3")]
    ok: Option<OkResponse>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct OkResponse {
    #[prost(message, repeated, tag = "2")]
    headers: Vec<HeaderOption>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct RateLimitResponse {
    /// 1: within the limit.
    #[prost(int32, tag = "1")]
    overall_code: i32,
    #[prost(message, repeated, tag = "4")]
    request_headers: Vec<Header>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct ProcessingRequest {
    #[prost(message, optional, tag = "2")]
    request_headers: Option<Unread>,
    #[prost(message, optional, tag = "3")]
    response_headers: Option<Unread>,
    #[prost(message, optional, tag = "4")]
    request_body: Option<Unread>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct ProcessingResponse {
    #[prost(message, optional, tag = "1")]
    request_headers: Option<PartResponse>,
    #[prost(message, optional, tag = "2")]
    response_headers: Option<PartResponse>,
    #[prost(message, optional, tag = "3")]
    request_body: Option<PartResponse>,
    #[prost(message, optional, tag = "4")]
    response_body: Option<PartResponse>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct PartResponse {
    #[prost(message, optional, tag = "1")]
    common: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    header_mutation: Option<HeaderMutation>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "grpc::prost")]
struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    set_headers: Vec<HeaderOption>,
}

const NAME: &str = "x-user";
const VALUE: &str = "ada";

fn header() -> Header {
    Header {
        key: NAME.into(),
        value: VALUE.into(),
        raw_value: Vec::new(),
    }
}

/// Authorization over HTTP.
fn verify(_: &Request, reply: &mut Reply) -> Result {
    reply.header(NAME, VALUE)?;
    reply.no_content()?;
    Ok(())
}

/// Authorization over gRPC.
async fn check(_: &Call<'_>, _: Unread) -> grpc::Result<CheckResponse> {
    let headers = vec![HeaderOption {
        header: Some(header()),
    }];
    Ok(CheckResponse {
        ok: Some(OkResponse { headers }),
    })
}

/// Rate limits.
async fn should_rate_limit(_: &Call<'_>, _: Unread) -> grpc::Result<RateLimitResponse> {
    Ok(RateLimitResponse {
        overall_code: 1,
        request_headers: vec![header()],
    })
}

/// External processing: a response to each message.
async fn process(
    _: &Call<'_>,
    messages: &mut Messages<'_, ProcessingRequest>,
    replies: &mut Replies<'_, '_, ProcessingResponse>,
) -> grpc::Result {
    while let Some(message) = messages.next().await? {
        let mut response = ProcessingResponse::default();
        if message.request_headers.is_some() {
            response.request_headers = Some(with_user());
        } else if message.response_headers.is_some() {
            response.response_headers = Some(PartResponse::default());
        } else if message.request_body.is_some() {
            response.request_body = Some(PartResponse::default());
        } else {
            response.response_body = Some(PartResponse::default());
        }
        replies.send(&response).await?;
    }
    Ok(())
}

fn with_user() -> PartResponse {
    let header = Header {
        key: NAME.into(),
        value: String::new(),
        raw_value: VALUE.into(),
    };
    let mutation = HeaderMutation {
        set_headers: vec![HeaderOption { header: Some(header) }],
    };
    PartResponse {
        common: Some(CommonResponse {
            header_mutation: Some(mutation),
        }),
    }
}

fn main() -> Exit {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9000".into());
    App::new()
        .get("/verify", verify)
        .grpc(Service::new("envoy.service.auth.v3.Authorization").unary("Check", check))
        .grpc(
            Service::new("envoy.service.ratelimit.v3.RateLimitService")
                .unary("ShouldRateLimit", should_rate_limit),
        )
        .grpc(Service::new("envoy.service.ext_proc.v3.ExternalProcessor").bidi("Process", process))
        .run(&addr)
}
