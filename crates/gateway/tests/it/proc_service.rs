//! An external processor that tests script, and the gateway that queries it.

use std::net::SocketAddr;

use ringmain_engine::Config;
use ringmain_gateway::limits::PROCESSOR_TIMEOUT_MOST;
use ringmain_gateway::model::{BodyMode, ExternalProcessor, Policy, ProcessingMode, Target};
use ringmain_gateway::stats::ExtensionKind;
use ringmain_wire::h2::{ErrorCode, Stream};

use crate::authz_messages::framed;
use crate::grpc_service;
use crate::h2_origin::{Framed, Happened, Peer};
use crate::origin::{Edge, Origin, edge, to};
use crate::policies::with;
use crate::proc_messages::Message;

/// The action of a service after a message.
pub(crate) enum Action {
    Reply(Vec<u8>),
    /// Several messages.
    Replies(Vec<Vec<u8>>),
    /// The end of the stream, with the status OK.
    End,
    Reset,
    Cut,
    /// The end of the stream with this status.
    Status(&'static str),
    Nothing,
}

/// A stream of a service.
struct Open {
    stream: Stream,
    input: Vec<u8>,
    /// The response has begun.
    is_started: bool,
}

/// A service that acts on each message.
pub(crate) fn processing(act: impl Fn(&Message) -> Action + Send + Sync + 'static) -> Framed {
    Framed::new(move |mut peer| {
        let mut streams: Vec<Open> = Vec::new();
        loop {
            match peer.next() {
                Happened::Head(stream, asked, _) => {
                    assert!(
                        asked
                            .line
                            .ends_with("/envoy.service.ext_proc.v3.ExternalProcessor/Process")
                    );
                    assert_eq!(asked.field("grpc-timeout"), None, "a stream has no deadline");
                    streams.push(Open {
                        stream,
                        input: Vec::new(),
                        is_started: false,
                    });
                }
                Happened::Data(stream, data, end) => {
                    let Some(at) = streams.iter().position(|open| open.stream == stream) else {
                        continue;
                    };
                    let open = &mut streams[at];
                    open.input.extend_from_slice(&data);
                    let mut is_open = true;
                    while let Some(message) = take_message(&mut open.input).filter(|_| is_open) {
                        is_open = perform(&mut peer, open, act(&Message::parse(&message)));
                    }
                    if end || !is_open {
                        streams.remove(at);
                    }
                }
                Happened::Reset(stream, _) => streams.retain(|open| open.stream != stream),
                Happened::Closed => return,
                _ => {}
            }
        }
    })
}

/// Takes a whole message from the front.
fn take_message(input: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(input.get(1..5)?.try_into().ok()?) as usize;
    if input.len() < 5 + length {
        return None;
    }
    let message = input[5..5 + length].to_vec();
    input.drain(..5 + length);
    Some(message)
}

/// Returns whether the stream continues.
fn perform(peer: &mut Peer, open: &mut Open, action: Action) -> bool {
    let stream = open.stream;
    let messages = match action {
        Action::Reply(message) => vec![message],
        Action::Replies(messages) => messages,
        Action::End => Vec::new(),
        Action::Nothing => return true,
        Action::Reset => {
            peer.reset(stream, ErrorCode::INTERNAL_ERROR);
            return false;
        }
        Action::Cut => {
            peer.cut();
            return false;
        }
        Action::Status(status) => {
            let fields = [("content-type", "application/grpc"), ("grpc-status", status)];
            match open.is_started {
                true => peer.trailers(stream, &fields[1..]),
                false => peer.respond(stream, 200, &fields, true),
            }
            return false;
        }
    };
    if !std::mem::replace(&mut open.is_started, true) {
        peer.respond(stream, 200, &[("content-type", "application/grpc")], false);
    }
    let is_end = messages.is_empty();
    for message in messages {
        peer.data(stream, &framed(&message), false);
    }
    if is_end {
        peer.trailers(stream, &[("grpc-status", "0")]);
    }
    !is_end
}

pub(crate) fn policy() -> ExternalProcessor {
    ExternalProcessor {
        message_timeout: PROCESSOR_TIMEOUT_MOST,
        ..ExternalProcessor::new(Target::Upstream("processor".into()))
    }
}

pub(crate) fn with_bodies(mode: BodyMode) -> ExternalProcessor {
    ExternalProcessor {
        mode: ProcessingMode {
            request_body: mode,
            response_body: mode,
            ..ProcessingMode::default()
        },
        ..policy()
    }
}

pub(crate) fn processed(
    engine: Config,
    origin: &Origin,
    processor: SocketAddr,
    policy: ExternalProcessor,
) -> Edge {
    let policies = vec![Policy::Processor(policy.into())];
    let mut config = with(to(&[origin.addr], |_, _| {}), policies);
    config
        .upstreams
        .push(grpc_service::upstream_of("processor", processor));
    edge(engine, config)
}

pub(crate) fn answering() -> Origin {
    Origin::answering("HTTP/1.1 200 OK\r\nX-Old: 1\r\nContent-Length: 6\r\n\r\nanswer")
}

/// Returns the messages by outcome.
pub(crate) fn outcomes(edge: &Edge) -> [u64; 3] {
    let all = edge.gateway.extension_reports();
    let found = all.iter().find(|report| report.kind == ExtensionKind::Processor);
    found.map_or([0; 3], |report| report.outcomes)
}
