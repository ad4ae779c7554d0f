//! Eleven responses of the application to each of its four decisions: the outcome for the client, and that nothing else was done.

use ringmain_hub::protocol::{Command, PingRequest, PublishRequest, RpcRequest};
use ringmain_push::ProxyEvent;
use ringmain_web::testing::TestClient;
use serde_json::json;

use crate::app_backend::{Response, proxied_options, serve_proxied};
use crate::token_signing::{FORMATS, WsClient, code, connect, subscribe};

const EVENTS: [ProxyEvent; 4] = [
    ProxyEvent::Connect,
    ProxyEvent::Rpc,
    ProxyEvent::Subscribe,
    ProxyEvent::Publish,
];

/// The outcome for a client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Done,
    Error { code: u32, temporary: bool },
    Closed(u16),
}

const NONE: Outcome = Outcome::Error {
    code: 100,
    temporary: true,
};

/// Returns a response by its number, and the outcome that it leads to.
fn numbered_response(number: usize, event: ProxyEvent) -> Option<(Response, Outcome)> {
    let good = match event {
        ProxyEvent::Connect => json!({ "result": { "user": "7" } }),
        ProxyEvent::Rpc => json!({ "result": { "data": 1 } }),
        _ => json!({ "result": {} }),
    };
    let error = |temporary| Outcome::Error {
        code: 1000,
        temporary,
    };
    Some(match number {
        0 => (Response::After(1, good), Outcome::Done),
        1 => (
            Response::After(0, json!({ "error": { "code": 1000, "message": "no" } })),
            error(false),
        ),
        2 => {
            let later = json!({ "error": { "code": 1000, "message": "later", "temporary": true } });
            (Response::After(1, later), error(true))
        }
        3 => (
            Response::After(1, json!({ "disconnect": { "code": 4000, "reason": "x" } })),
            Outcome::Closed(4000),
        ),
        4 => (
            Response::After(1, json!({ "disconnect": { "code": 4501, "reason": "x" } })),
            Outcome::Closed(4501),
        ),
        5 => (
            Response::After(1, json!({ "disconnect": { "code": 2999, "reason": "x" } })),
            NONE,
        ),
        6 => (Response::Bytes(Vec::new()), NONE),
        7 => (Response::Bytes(b"no JSON".to_vec()), NONE),
        8 => (Response::After(1, json!({ "result": null })), NONE),
        9 => (Response::Fails, NONE),
        10 => (Response::Never, NONE),
        _ => return None,
    })
}

fn command(event: ProxyEvent) -> Command {
    let mut command = Command::default();
    match event {
        ProxyEvent::Connect => return connect(""),
        ProxyEvent::Subscribe => return subscribe("proxied:a", ""),
        ProxyEvent::Publish => {
            command.publish = Some(PublishRequest {
                channel: "proxied:b".to_owned(),
                data: "1".into(),
            });
        }
        _ => {
            command.rpc = Some(RpcRequest {
                method: "m".to_owned(),
                data: "1".into(),
            });
        }
    }
    command
}

fn serve(asked: ProxyEvent, number: usize) -> TestClient {
    let (client, _) = serve_proxied(proxied_options(), move |event, body| {
        // The other subscriber's own.
        let is_listener = body["channel"] == "proxied:b" && event == ProxyEvent::Subscribe;
        match numbered_response(if event == asked && !is_listener { number } else { 0 }, event) {
            Some((answer, _)) => answer,
            None => Response::Fails,
        }
    });
    client
}

#[test]
fn every_response_has_one_outcome() {
    let mut tried = 0;
    for asked in EVENTS {
        for (number, format) in (0..).zip(FORMATS.into_iter().cycle()) {
            let Some((_, expected)) = numbered_response(number, asked) else {
                break;
            };
            tried += 1;
            let form = format!("{asked:?}, answer {number}");
            let mut client = serve(asked, number);
            let mut listener = WsClient::open(&mut client, format);
            let mut ws = WsClient::open(&mut client, format);
            if asked != ProxyEvent::Connect {
                for ws in [&mut listener, &mut ws] {
                    assert_eq!(code(&ws.request(connect(""))), 0, "{form}");
                }
                assert_eq!(code(&listener.request(subscribe("proxied:b", ""))), 0, "{form}");
            }
            if let Outcome::Closed(code) = expected {
                ws.send([command(asked)]);
                assert_eq!(ws.socket.closed(), (code, "x".to_owned()), "{form}");
            } else {
                let reply = ws.request(command(asked));
                let found = match &reply.error {
                    Some(error) => Outcome::Error {
                        code: error.code,
                        temporary: error.temporary,
                    },
                    None => Outcome::Done,
                };
                assert_eq!(found, expected, "{form}");
                if asked != ProxyEvent::Connect {
                    let ping = Command {
                        ping: Some(PingRequest {}),
                        ..Command::default()
                    };
                    assert_eq!(code(&ws.request(ping)), 0, "{form}: the connection goes on");
                }
                if asked == ProxyEvent::Subscribe {
                    // Subscribed already, or requested again.
                    let again = if expected == Outcome::Done {
                        105
                    } else {
                        code(&reply)
                    };
                    assert_eq!(code(&ws.request(command(asked))), again, "{form}");
                }
            }
            client.advance(std::time::Duration::from_millis(10));
            if asked != ProxyEvent::Connect {
                listener.receive_all();
                let is_published = asked == ProxyEvent::Publish && expected == Outcome::Done;
                assert_eq!(!listener.is_quiet(), is_published, "{form}");
            }
            drop((listener, ws));
            client.finish().expect("it ends");
        }
    }
    assert_eq!(tried, 44);
}
