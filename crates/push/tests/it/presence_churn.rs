//! Hundreds of clients that subscribe to a channel and leave it in every way: each has one join and one leave, and none remains.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_hub::protocol::{Command, Format, UnsubscribeRequest};
use ringmain_push::Options;
use serde_json::json;

use crate::api::call;
use crate::token_signing::{WsClient, code, guarded, serve_guarded, subscribe, token};

const CLIENTS: usize = 600;
const TOGETHER: usize = 60;
const CHANNEL: &str = "kept:room";

fn with_join_leave() -> Options {
    let mut options = guarded();
    let kept = options.namespaces.get_mut("kept").expect("a namespace");
    kept.channel_options.join_leave = true;
    options
}

#[test]
fn every_way_to_leave_is_reported_once() {
    let mut client = serve_guarded(3, with_join_leave());
    let user = |name: String| token(json!({ "sub": name }));
    let mut observer = WsClient::connected(&mut client, Format::Protobuf, &user("observer".to_owned())).0;
    assert_eq!(code(&observer.request(subscribe(CHANNEL, ""))), 0);
    let mut seen: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut number = 0;
    while number < CLIENTS {
        let mut ws_clients: Vec<(usize, WsClient)> = Vec::new();
        for _ in 0..TOGETHER {
            let format = [Format::Json, Format::Protobuf][number % 2];
            let mut ws = WsClient::connected(&mut client, format, &user(format!("u{number}"))).0;
            assert_eq!(code(&ws.request(subscribe(CHANNEL, ""))), 0);
            ws_clients.push((number, ws));
            number += 1;
        }
        let stats = call(&mut client, "presence_stats", &json!({ "channel": CHANNEL }));
        assert_eq!(
            stats["result"],
            json!({ "num_clients": TOGETHER + 1, "num_users": TOGETHER + 1 })
        );
        for (number, ws) in &mut ws_clients {
            match *number / 2 % 4 {
                // With the connection, without a command.
                0 => {}
                1 => ws.socket.close(1000, ""),
                2 => {
                    let unsubscribe = UnsubscribeRequest {
                        channel: CHANNEL.to_owned(),
                    };
                    ws.request(Command {
                        unsubscribe: Some(unsubscribe),
                        ..Command::default()
                    });
                }
                _ => {
                    let reply = call(
                        &mut client,
                        "disconnect",
                        &json!({ "user": format!("u{number}") }),
                    );
                    assert_eq!(reply["result"]["num_clients"], 1);
                }
            }
        }
        // The connections of unsubscribed clients close as well, without a second leave.
        drop(ws_clients);
        client.advance(Duration::from_millis(200));
        observer.receive_all();
        while !observer.is_quiet() {
            let push = observer.push();
            let joined = push.join.map(|join| ("join", join.info));
            let left = push.leave.map(|leave| ("leave", leave.info));
            let (kind, info) = joined.or(left).expect("a join or a leave");
            seen.entry(info.expect("an info").user).or_default().push(kind);
        }
        let stats = call(&mut client, "presence_stats", &json!({ "channel": CHANNEL }));
        assert_eq!(stats["result"], json!({ "num_clients": 1, "num_users": 1 }));
    }
    seen.remove("observer");
    assert_eq!(seen.len(), CLIENTS);
    for (user, kinds) in seen {
        assert_eq!(kinds, ["join", "leave"], "{user}");
    }
    drop(observer);
    client.finish().expect("it ends");
}
