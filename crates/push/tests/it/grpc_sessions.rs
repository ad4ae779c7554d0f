//! Bidirectional clients over gRPC, and over gRPC-Web, whose further commands arrive in calls of their own.

use ringmain_hub::protocol::{
    Command, ConnectRequest, EmulationRequest, Format, PingRequest, Reply, SubscribeRequest,
};
use ringmain_push::Options;
use ringmain_wire::grpc::{Decoder, Event, Frame, Limits, Slot, WebTrailers, decode_message};
use ringmain_wire::h2::Stream;

use crate::support::{Http2, options, serve};

const SERVICE: &str = "/centrifugal.centrifuge.protocol.Centrifuge";

/// Returns a message without the length before it.
fn encoded(part: &Command) -> Vec<u8> {
    let mut message = Vec::new();
    Format::Protobuf.write(part, &mut message).expect("bytes");
    let before = message.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
    message.split_off(before)
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let slot = Slot::open(&mut out);
    out.extend_from_slice(message);
    slot.close(&mut out, false).expect("a short message");
    out
}

fn connect() -> Command {
    Command {
        id: 1,
        connect: Some(ConnectRequest::default()),
        ..Command::default()
    }
}

fn subscribe(id: u32, channel: &str) -> Command {
    Command {
        id,
        subscribe: Some(SubscribeRequest {
            channel: channel.to_owned(),
            ..SubscribeRequest::default()
        }),
        ..Command::default()
    }
}

/// Receives the next `count` replies of a call.
fn replies(http: &mut Http2, stream: Stream, bytes: &mut Vec<u8>, count: usize) -> Vec<Reply> {
    let mut replies = Vec::new();
    for _ in 0..1000 {
        bytes.append(&mut http.response(stream).body);
        let mut decoder = Decoder::with_trailers(&Limits::INTERNET);
        let (mut at, mut whole, mut payload, mut is_reply) = (0, 0, Vec::new(), false);
        loop {
            let step = decoder.decode(&bytes[at..]).expect("frames");
            at += step.consumed;
            match step.event {
                Event::NeedMore => break,
                Event::Begin { frame, .. } => {
                    payload.clear();
                    is_reply = frame != Frame::Trailers;
                }
                Event::Data(data) => payload.extend_from_slice(data),
                Event::End if is_reply => {
                    replies.push(Format::Protobuf.read(&payload).expect("a reply"));
                    whole = at;
                }
                Event::End => {
                    let trailers = WebTrailers::parse(&payload).expect("lines");
                    panic!("the call has ended: {:?}", trailers.iter().count());
                }
            }
        }
        bytes.drain(..whole);
        if replies.len() >= count {
            break;
        }
        http.turn();
    }
    assert_eq!(replies.len(), count, "{replies:?}");
    replies
}

#[test]
fn commands_and_replies_are_messages_of_one_call() {
    let mut client = serve(options());
    let mut http = Http2::new(&mut client);
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    let path = format!("{SERVICE}/Communicate");
    let stream = http.open_request("POST", &path, &fields);
    let mut bytes = Vec::new();
    http.send(stream, &framed(&encoded(&connect())), false);
    let connected = replies(&mut http, stream, &mut bytes, 1).remove(0);
    assert_eq!(connected.id, 1);
    assert!(connected.connect.expect("connected").pong);
    // Two commands in one piece, the second cut.
    let both = [
        framed(&encoded(&subscribe(2, "kept:a"))),
        framed(&encoded(&subscribe(3, "b"))),
    ]
    .concat();
    http.send(stream, &both[..both.len() - 3], false);
    http.turn();
    http.send(stream, &both[both.len() - 3..], false);
    let subscribed = replies(&mut http, stream, &mut bytes, 2);
    assert!(
        subscribed.iter().all(|reply| reply.subscribe.is_some()),
        "{subscribed:?}"
    );
    let request = client.post("/api/publish").header("x-api-key", "key");
    assert_eq!(request.body(r#"{"channel":"b","data":7}"#).send().status(), 200);
    let push = replies(&mut http, stream, &mut bytes, 1)
        .remove(0)
        .push
        .expect("a push");
    assert_eq!(
        (&*push.channel, &*push.pub_.expect("a publication").data),
        ("b", &b"7"[..])
    );
    // A command that is not one ends the call with a status.
    let mut second = connect();
    second.id = 4;
    http.send(stream, &framed(&encoded(&second)), false);
    while !http.response(stream).end {
        http.turn();
    }
    let response = http.response(stream);
    let status = response.fields.iter().find(|(name, _)| name == "grpc-message");
    let text = decode_message(status.expect("a status").1.as_bytes()).into_owned();
    assert_eq!(text, "bad request (code 3501)");
}

/// The limit applies to the length before a message, so that no more than the limit is buffered.
#[test]
fn messages_are_limited_before_they_are_received() {
    let mut client = serve(Options {
        message_bytes: 2000,
        ..options()
    });
    for (length, is_accepted) in [(2000_u32, true), (2001, false), (1 << 20, false)] {
        let mut http = Http2::new(&mut client);
        let fields = [("content-type", "application/grpc"), ("te", "trailers")];
        let stream = http.open_request("POST", &format!("{SERVICE}/Communicate"), &fields);
        http.send(stream, &framed(&encoded(&connect())), false);
        replies(&mut http, stream, &mut Vec::new(), 1);
        // The message does not follow.
        let prefix = [&[0][..], &length.to_be_bytes()].concat();
        http.send(stream, &prefix, false);
        for _ in 0..20 {
            http.turn();
        }
        let response = http.response(stream);
        let status = response.fields.iter().find(|(name, _)| name == "grpc-status");
        let expected = (!is_accepted).then_some("8");
        assert_eq!(status.map(|(_, value)| &**value), expected, "{length}");
    }
}

#[test]
fn a_client_that_ends_its_side_leaves() {
    let mut client = serve(options());
    let mut http = Http2::new(&mut client);
    let fields = [("content-type", "application/grpc"), ("te", "trailers")];
    let stream = http.open_request("POST", &format!("{SERVICE}/Communicate"), &fields);
    let commands = [connect(), subscribe(2, "kept:a")].map(|command| framed(&encoded(&command)));
    http.send(stream, &commands.concat(), false);
    replies(&mut http, stream, &mut Vec::new(), 2);
    http.send(stream, &[], true);
    while !http.response(stream).end {
        http.turn();
    }
    let fields = &http.response(stream).fields;
    assert!(
        fields.contains(&("grpc-status".to_owned(), "0".to_owned())),
        "{fields:?}"
    );
    let request = client.post("/api/presence_stats").header("x-api-key", "key");
    let reply = request.body(r#"{"channel":"kept:a"}"#).send();
    assert_eq!(reply.text(), r#"{"result":{"num_clients":0,"num_users":0}}"#);
}

/// Browsers cannot send messages while they receive some: the first command is in the call, and the others in calls of their own.
#[test]
fn browsers_send_further_commands_in_other_calls() {
    let mut client = serve(options());
    let mut http = Http2::new(&mut client);
    let fields = [("content-type", "application/grpc-web+proto")];
    let stream = http.request(
        "POST",
        &format!("{SERVICE}/Communicate"),
        &fields,
        &framed(&encoded(&connect())),
    );
    let mut bytes = Vec::new();
    let connected = replies(&mut http, stream, &mut bytes, 1).remove(0);
    let connected = connected.connect.expect("connected");
    let mut commands = Vec::new();
    for command in [
        subscribe(2, "b"),
        Command {
            id: 3,
            ping: Some(PingRequest {}),
            ..Command::default()
        },
    ] {
        Format::Protobuf.write(&command, &mut commands).expect("bytes");
    }
    let mut emulate = |node: &str| {
        let emulation = EmulationRequest {
            node: node.to_owned(),
            session: connected.session.clone(),
            data: commands.clone().into(),
        };
        let mut message = Vec::new();
        Format::Protobuf.write(&emulation, &mut message).expect("bytes");
        let before = message.iter().take_while(|&&byte| byte >= 0x80).count() + 1;
        let request = client.post(&format!("{SERVICE}/Emulate"));
        let request = request.header("content-type", "application/grpc-web+proto");
        let reply = request.body(framed(&message[before..])).send();
        String::from_utf8_lossy(reply.body()).into_owned()
    };
    assert!(emulate(&connected.node).contains("grpc-status: 0"));
    let answered = replies(&mut http, stream, &mut bytes, 2);
    let has = |field: fn(&Reply) -> bool| answered.iter().any(field);
    assert!(
        has(|reply| reply.subscribe.is_some()) && has(|reply| reply.ping.is_some()),
        "{answered:?}"
    );
    assert!(emulate("other").contains("grpc-status: 5"), "another node");
}
