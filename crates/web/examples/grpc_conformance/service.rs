//! The suite's service: executes the definition in each request, and echoes the received request.

use std::time::Duration;

use ringmain_web::grpc::prost::Message;
use ringmain_web::grpc::{self, Call, Code, Messages, Replies, Service, Status};

use crate::messages::{
    Any, BidiStreamRequest, ConformancePayload, ErrorDefinition, Header, RequestInfo, Response,
    ServerStreamRequest, StreamResponseDefinition, UnaryOutcome, UnaryRequest, UnaryResponseDefinition,
};

/// `limit`: bytes of a message, if not 0. The method `Unimplemented` is left out, as it should be.
pub(crate) fn service(limit: u32) -> Service {
    let service = Service::new("connectrpc.conformance.v1.ConformanceService")
        .unary("Unary", unary)
        .unary("IdempotentUnary", idempotent)
        .server_streaming("ServerStream", server_stream)
        .client_streaming("ClientStream", client_stream)
        .bidi("BidiStream", bidi_stream)
        .compress();
    if limit == 0 {
        service
    } else {
        service.message_limit(limit)
    }
}

fn any(name: &str, message: &impl Message) -> Any {
    Any {
        type_url: format!("type.googleapis.com/connectrpc.conformance.v1.{name}"),
        value: message.encode_to_vec(),
    }
}

/// Returns the received properties of the request.
fn info(call: &Call<'_>, requests: Vec<Any>) -> RequestInfo {
    let mut request_headers: Vec<Header> = Vec::new();
    for field in call.request().headers() {
        let name = String::from_utf8_lossy(field.name).to_lowercase();
        let value = String::from_utf8_lossy(field.value).into_owned();
        match request_headers.iter_mut().find(|header| header.name == name) {
            Some(header) => header.value.push(value),
            None => request_headers.push(Header {
                name,
                value: vec![value],
            }),
        }
    }
    let left = call.remaining_time();
    RequestInfo {
        request_headers,
        timeout_ms: left.and_then(|left| i64::try_from(left.as_millis()).ok()),
        requests,
    }
}

fn metadata(call: &Call<'_>, headers: &[Header], trailers: &[Header]) -> grpc::Result {
    for header in headers {
        for value in &header.value {
            call.add_header(&header.name.to_lowercase(), value)?;
        }
    }
    for trailer in trailers {
        for value in &trailer.value {
            call.add_trailer(&trailer.name.to_lowercase(), value)?;
        }
    }
    Ok(())
}

async fn wait(call: &Call<'_>, ms: u32) {
    if ms > 0 {
        call.request().cx().sleep(Duration::from_millis(ms.into())).await;
    }
}

/// `info`: if nothing else was sent that has it.
fn status(error: ErrorDefinition, info: Option<RequestInfo>) -> Status {
    let code = Code::of_number(u32::try_from(error.code).unwrap_or_default());
    let info = info.map(|info| any("ConformancePayload.RequestInfo", &info));
    let details = error.details.into_iter().chain(info);
    details.fold(
        Status::new(code, error.message.unwrap_or_default()),
        |status, detail| status.with_detail(detail.type_url, detail.value),
    )
}

async fn answer(
    call: &Call<'_>,
    definition: Option<UnaryResponseDefinition>,
    requests: Vec<Any>,
) -> grpc::Result<Response> {
    let definition = definition.unwrap_or_default();
    metadata(call, &definition.response_headers, &definition.response_trailers)?;
    let info = info(call, requests);
    wait(call, definition.response_delay_ms).await;
    let data = match definition.response {
        Some(UnaryOutcome::Error(error)) => return Err(status(error, Some(info))),
        Some(UnaryOutcome::Data(data)) => data,
        None => Vec::new(),
    };
    Ok(payload(data, Some(info)))
}

fn payload(data: Vec<u8>, request_info: Option<RequestInfo>) -> Response {
    Response {
        payload: Some(ConformancePayload { data, request_info }),
    }
}

async fn unary(call: &Call<'_>, request: UnaryRequest) -> grpc::Result<Response> {
    let requests = vec![any("UnaryRequest", &request)];
    answer(call, request.response_definition, requests).await
}

async fn idempotent(call: &Call<'_>, request: UnaryRequest) -> grpc::Result<Response> {
    let requests = vec![any("IdempotentUnaryRequest", &request)];
    answer(call, request.response_definition, requests).await
}

async fn client_stream(call: &Call<'_>, messages: &mut Messages<'_, UnaryRequest>) -> grpc::Result<Response> {
    let (mut definition, mut requests) = (None, Vec::new());
    while let Some(request) = messages.next().await? {
        let first = requests.is_empty();
        requests.push(any("ClientStreamRequest", &request));
        if first {
            definition = request.response_definition;
        }
    }
    answer(call, definition, requests).await
}

async fn server_stream(
    call: &Call<'_>,
    request: ServerStreamRequest,
    replies: &mut Replies<'_, '_, Response>,
) -> grpc::Result {
    let requests = vec![any("ServerStreamRequest", &request)];
    let definition = request.response_definition.unwrap_or_default();
    metadata(call, &definition.response_headers, &definition.response_trailers)?;
    if !definition.response_data.is_empty() {
        replies.open().await?;
    }
    let info = info(call, requests);
    rest(call, definition, 0, info, replies).await
}

/// Sends the remaining responses after the first `sent`.
async fn rest(
    call: &Call<'_>,
    definition: StreamResponseDefinition,
    sent: usize,
    info: RequestInfo,
    replies: &mut Replies<'_, '_, Response>,
) -> grpc::Result {
    let mut info = Some(info).filter(|_| sent == 0);
    for data in definition.response_data.into_iter().skip(sent) {
        wait(call, definition.response_delay_ms).await;
        replies.send(&payload(data, info.take())).await?;
    }
    match definition.error {
        Some(error) => Err(status(error, info)),
        None => Ok(()),
    }
}

async fn bidi_stream(
    call: &Call<'_>,
    messages: &mut Messages<'_, BidiStreamRequest>,
    replies: &mut Replies<'_, '_, Response>,
) -> grpc::Result {
    let Some(first) = messages.next().await? else {
        return Ok(());
    };
    let mut requests = vec![any("BidiStreamRequest", &first)];
    let definition = first.response_definition.unwrap_or_default();
    metadata(call, &definition.response_headers, &definition.response_trailers)?;
    let mut sent = 0;
    if first.full_duplex {
        replies.open().await?;
        while let Some(data) = definition.response_data.get(sent) {
            wait(call, definition.response_delay_ms).await;
            let now = std::mem::take(&mut requests);
            let info = if sent == 0 {
                info(call, now)
            } else {
                RequestInfo {
                    requests: now,
                    ..RequestInfo::default()
                }
            };
            replies.send(&payload(data.clone(), Some(info))).await?;
            sent += 1;
            let Some(message) = messages.next().await? else {
                break;
            };
            requests.push(any("BidiStreamRequest", &message));
        }
    } else {
        while let Some(message) = messages.next().await? {
            requests.push(any("BidiStreamRequest", &message));
        }
    }
    let info = info(call, requests);
    rest(call, definition, sent, info, replies).await
}
