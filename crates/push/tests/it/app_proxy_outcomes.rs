//! Eleven answers of the application to each of the four questions that decide: the outcome for the client, and that nothing else was done.

use ringmain_hub::protocol::{Command, PingRequest, PublishRequest, RpcRequest};
use ringmain_push::Event;
use ringmain_web::testing::TestClient;
use serde_json::json;

use crate::app_backend::{Answer, asking, serve_asked};
use crate::token_signing::{FORMATS, Talker, code, connect, subscribe};

const EVENTS: [Event; 4] = [Event::Connect, Event::Rpc, Event::Subscribe, Event::Publish];

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

/// Returns an answer by its number, and the outcome that it leads to.
fn answer(number: usize, event: Event) -> Option<(Answer, Outcome)> {
    let good = match event {
        Event::Connect => json!({ "result": { "user": "7" } }),
        Event::Rpc => json!({ "result": { "data": 1 } }),
        _ => json!({ "result": {} }),
    };
    let error = |temporary| Outcome::Error {
        code: 1000,
        temporary,
    };
    Some(match number {
        0 => (Answer::In(1, good), Outcome::Done),
        1 => (
            Answer::In(0, json!({ "error": { "code": 1000, "message": "no" } })),
            error(false),
        ),
        2 => {
            let later = json!({ "error": { "code": 1000, "message": "later", "temporary": true } });
            (Answer::In(1, later), error(true))
        }
        3 => (
            Answer::In(1, json!({ "disconnect": { "code": 4000, "reason": "x" } })),
            Outcome::Closed(4000),
        ),
        4 => (
            Answer::In(1, json!({ "disconnect": { "code": 4501, "reason": "x" } })),
            Outcome::Closed(4501),
        ),
        5 => (
            Answer::In(1, json!({ "disconnect": { "code": 2999, "reason": "x" } })),
            NONE,
        ),
        6 => (Answer::Bytes(Vec::new()), NONE),
        7 => (Answer::Bytes(b"no JSON".to_vec()), NONE),
        8 => (Answer::In(1, json!({ "result": null })), NONE),
        9 => (Answer::Fails, NONE),
        10 => (Answer::Never, NONE),
        _ => return None,
    })
}

fn command(event: Event) -> Command {
    let mut command = Command::default();
    match event {
        Event::Connect => return connect(""),
        Event::Subscribe => return subscribe("asked:a", ""),
        Event::Publish => {
            command.publish = Some(PublishRequest {
                channel: "asked:b".to_owned(),
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

fn serve(asked: Event, number: usize) -> TestClient {
    let (client, _) = serve_asked(asking(), move |event, body| {
        // The listener's own.
        let is_listener = body["channel"] == "asked:b" && event == Event::Subscribe;
        match answer(if event == asked && !is_listener { number } else { 0 }, event) {
            Some((answer, _)) => answer,
            None => Answer::Fails,
        }
    });
    client
}

#[test]
fn every_answer_leads_to_one_outcome() {
    let mut tried = 0;
    for asked in EVENTS {
        for (number, format) in (0..).zip(FORMATS.into_iter().cycle()) {
            let Some((_, expected)) = answer(number, asked) else {
                break;
            };
            tried += 1;
            let form = format!("{asked:?}, answer {number}");
            let mut client = serve(asked, number);
            let mut listener = Talker::open(&mut client, format);
            let mut talker = Talker::open(&mut client, format);
            if asked != Event::Connect {
                for talker in [&mut listener, &mut talker] {
                    assert_eq!(code(&talker.ask(connect(""))), 0, "{form}");
                }
                assert_eq!(code(&listener.ask(subscribe("asked:b", ""))), 0, "{form}");
            }
            if let Outcome::Closed(code) = expected {
                talker.send([command(asked)]);
                assert_eq!(talker.socket.closed(), (code, "x".to_owned()), "{form}");
            } else {
                let reply = talker.ask(command(asked));
                let found = match &reply.error {
                    Some(error) => Outcome::Error {
                        code: error.code,
                        temporary: error.temporary,
                    },
                    None => Outcome::Done,
                };
                assert_eq!(found, expected, "{form}");
                if asked != Event::Connect {
                    let ping = Command {
                        ping: Some(PingRequest {}),
                        ..Command::default()
                    };
                    assert_eq!(code(&talker.ask(ping)), 0, "{form}: the connection goes on");
                }
                if asked == Event::Subscribe {
                    // Subscribed already, or asked about again.
                    let again = if expected == Outcome::Done {
                        105
                    } else {
                        code(&reply)
                    };
                    assert_eq!(code(&talker.ask(command(asked))), again, "{form}");
                }
            }
            client.advance(std::time::Duration::from_millis(10));
            if asked != Event::Connect {
                listener.look();
                let is_published = asked == Event::Publish && expected == Outcome::Done;
                assert_eq!(!listener.is_quiet(), is_published, "{form}");
            }
            drop((listener, talker));
            client.finish().expect("it ends");
        }
    }
    assert_eq!(tried, 44);
}
