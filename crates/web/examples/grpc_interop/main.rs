//! `grpc.testing.TestService`, which the interoperability clients of gRPC's own implementations ask: `cargo xtask suite grpc`.
//!
//! `grpc_interop ADDR`. The cases and their expected results are described in gRPC's `doc/interop-test-descriptions.md`; those that
//! need a cloud's credentials or compressed replies on demand are not served.

mod messages;

use std::time::Duration;

use ringmain_web::grpc::{self, Call, Code, Messages, Replies, Service, Status};
use ringmain_web::{App, Exit};

use self::messages::{
    EchoStatus, Empty, InputRequest, InputResponse, OutputRequest, Payload, Response, ResponseParameters,
    SimpleRequest,
};

/// The client metadata that is echoed before the replies, and after them.
const INITIAL: &str = "x-grpc-test-echo-initial";
const TRAILING: &str = "x-grpc-test-echo-trailing-bin";

fn main() -> Exit {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    // `UnimplementedCall` is none of its methods, as it should be.
    App::new()
        .grpc(
            Service::new("grpc.testing.TestService")
                .unary("EmptyCall", empty)
                .unary("UnaryCall", unary)
                .server_streaming("StreamingOutputCall", output)
                .client_streaming("StreamingInputCall", input)
                .bidi("FullDuplexCall", full_duplex)
                .bidi("HalfDuplexCall", half_duplex),
        )
        .run(&addr)
}

async fn empty(_: &Call<'_>, _: Empty) -> grpc::Result<Empty> {
    Ok(Empty {})
}

async fn unary(call: &Call<'_>, request: SimpleRequest) -> grpc::Result<Response> {
    echo(call)?;
    check(request.response_status)?;
    let mut response = of_size(request.response_size)?;
    if request.fill_server_id {
        response.server_id = format!("ringmain-{}", std::process::id());
    }
    Ok(response)
}

async fn output(
    call: &Call<'_>,
    request: OutputRequest,
    replies: &mut Replies<'_, '_, Response>,
) -> grpc::Result {
    echo(call)?;
    answer(call, request.response_parameters, replies).await?;
    check(request.response_status)
}

async fn input(_: &Call<'_>, messages: &mut Messages<'_, InputRequest>) -> grpc::Result<InputResponse> {
    let mut all = 0;
    while let Some(message) = messages.next().await? {
        all += message.payload.map_or(0, |payload| payload.body.len());
    }
    let aggregated_payload_size = i32::try_from(all)
        .map_err(|_| Status::new(Code::OutOfRange, "expected less than 2 GiB of payloads in all"))?;
    Ok(InputResponse {
        aggregated_payload_size,
    })
}

/// Answers each message on arrival.
async fn full_duplex(
    call: &Call<'_>,
    messages: &mut Messages<'_, OutputRequest>,
    replies: &mut Replies<'_, '_, Response>,
) -> grpc::Result {
    echo(call)?;
    while let Some(message) = messages.next().await? {
        check(message.response_status)?;
        answer(call, message.response_parameters, replies).await?;
    }
    Ok(())
}

/// Answers once all messages have arrived.
async fn half_duplex(
    call: &Call<'_>,
    messages: &mut Messages<'_, OutputRequest>,
    replies: &mut Replies<'_, '_, Response>,
) -> grpc::Result {
    echo(call)?;
    let mut asked = Vec::new();
    while let Some(message) = messages.next().await? {
        asked.extend(message.response_parameters);
    }
    answer(call, asked, replies).await
}

async fn answer(
    call: &Call<'_>,
    asked: Vec<ResponseParameters>,
    replies: &mut Replies<'_, '_, Response>,
) -> grpc::Result {
    for one in asked {
        if let Ok(us @ 1..) = u64::try_from(one.interval_us) {
            call.request().cx().sleep(Duration::from_micros(us)).await;
        }
        replies.send(&of_size(one.size)?).await?;
    }
    Ok(())
}

fn of_size(bytes: i32) -> grpc::Result<Response> {
    let bytes = usize::try_from(bytes).map_err(|_| {
        Status::new(
            Code::InvalidArgument,
            "expected a size of 0 or more, found a negative one",
        )
    })?;
    Ok(Response {
        payload: Some(Payload {
            kind: 0,
            body: vec![0; bytes],
        }),
        server_id: String::new(),
    })
}

/// The status that a message asks for.
fn check(asked: Option<EchoStatus>) -> grpc::Result {
    match asked {
        Some(status) if status.code != 0 => {
            let code = Code::of_number(u32::try_from(status.code).unwrap_or_default());
            Err(Status::new(code, status.message))
        }
        _ => Ok(()),
    }
}

fn echo(call: &Call<'_>) -> grpc::Result {
    if let Some(said) = call.metadata(INITIAL) {
        call.add_header(INITIAL, said)?;
    }
    if let Some(said) = call.metadata_bytes(TRAILING)? {
        call.add_trailer(TRAILING, said)?;
    }
    Ok(())
}
