//! Hundreds of clients that enter a channel and leave it in every way: each is joined and left once, and none stays behind.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_hub::protocol::{Command, Format, UnsubscribeRequest};
use ringmain_push::Options;
use serde_json::json;

use crate::api::call;
use crate::token_signing::{Talker, code, guarded, serve_guarded, subscribe, token};

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
fn who_leaves_in_whichever_way_is_gone_once() {
    let mut client = serve_guarded(3, with_join_leave());
    let user = |name: String| token(json!({ "sub": name }));
    let mut observer = Talker::connected(&mut client, Format::Protobuf, &user("observer".to_owned())).0;
    assert_eq!(code(&observer.ask(subscribe(CHANNEL, ""))), 0);
    let mut seen: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut number = 0;
    while number < CLIENTS {
        let mut talkers: Vec<(usize, Talker)> = Vec::new();
        for _ in 0..TOGETHER {
            let format = [Format::Json, Format::Protobuf][number % 2];
            let mut talker = Talker::connected(&mut client, format, &user(format!("u{number}"))).0;
            assert_eq!(code(&talker.ask(subscribe(CHANNEL, ""))), 0);
            talkers.push((number, talker));
            number += 1;
        }
        let stats = call(&mut client, "presence_stats", &json!({ "channel": CHANNEL }));
        assert_eq!(
            stats["result"],
            json!({ "num_clients": TOGETHER + 1, "num_users": TOGETHER + 1 })
        );
        for (number, talker) in &mut talkers {
            match *number / 2 % 4 {
                // With the connection, without a word.
                0 => {}
                1 => talker.socket.close(1000, ""),
                2 => {
                    let unsubscribe = UnsubscribeRequest {
                        channel: CHANNEL.to_owned(),
                    };
                    talker.ask(Command {
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
        // The connections of those that have unsubscribed end as well, without a second leave.
        drop(talkers);
        client.advance(Duration::from_millis(200));
        observer.look();
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
