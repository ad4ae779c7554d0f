//! Every form of a page of history and of a position, compared with Centrifugo (by `tests/centrifugo`).

use std::time::Duration;

use ringmain_hub::history::HistoryOptions;
use ringmain_web::testing::{TestClient, TestSocket};
use serde_json::{Value, json};

use crate::api::call;
use crate::support::{options, serve_by};

/// Publishes ten publications. Returns the epoch.
fn serve() -> (TestClient, String) {
    let mut options = options();
    let kept = options.namespaces.get_mut("kept").expect("a namespace");
    kept.channel_options.history = Some(HistoryOptions {
        publications: 100,
        bytes: 1 << 20,
        ttl: Duration::from_secs(300),
    });
    let mut client = serve_by(2, options);
    let mut epoch = String::new();
    for number in 1..=10 {
        let told = call(
            &mut client,
            "publish",
            &json!({ "channel": "kept:a", "data": number }),
        );
        epoch = told["result"]["epoch"].as_str().expect("an epoch").to_owned();
    }
    (client, epoch)
}

fn connected(client: &mut TestClient) -> TestSocket {
    let mut socket = client.ws("/connection/websocket").open();
    socket.send_text(r#"{"id":1,"connect":{}}"#);
    socket.text();
    socket
}

fn request(socket: &mut TestSocket, command: &Value) -> Value {
    socket.send_text(command.to_string());
    serde_json::from_str(&socket.text()).expect("JSON")
}

fn offsets(publications: &Value) -> Value {
    let all = publications.as_array().into_iter().flatten();
    all.map(|one| one["offset"].clone()).collect()
}

/// Returns the offsets in a response, or the code of its error.
fn page_offsets(answer: &Value, result: &str) -> Value {
    match &answer["error"]["code"] {
        Value::Null => {
            assert_eq!(answer[result]["offset"], 10, "{answer}");
            offsets(&answer[result]["publications"])
        }
        code => code.clone(),
    }
}

#[test]
fn pages_of_history() {
    let (mut client, epoch) = serve();
    let since = |offset: u64| json!({ "offset": offset, "epoch": epoch });
    let mut socket = connected(&mut client);
    assert!(
        request(
            &mut socket,
            &json!({ "id": 2, "subscribe": { "channel": "kept:a" } })
        )["subscribe"]
            .is_object()
    );
    let all = json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let reversed = json!([10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    let pages = [
        (json!({}), json!([])),
        (json!({ "limit": 0 }), json!([])),
        (json!({ "limit": 3 }), json!([1, 2, 3])),
        (json!({ "limit": -1 }), all.clone()),
        (json!({ "limit": 100 }), all),
        (json!({ "limit": 3, "reverse": true }), json!([10, 9, 8])),
        (json!({ "limit": -1, "reverse": true }), reversed),
        (json!({ "limit": 3, "since": since(0) }), json!([1, 2, 3])),
        (json!({ "limit": 3, "since": since(4) }), json!([5, 6, 7])),
        (json!({ "limit": 3, "since": since(9) }), json!([10])),
        (json!({ "limit": 3, "since": since(10) }), json!([])),
        (json!({ "limit": 3, "since": since(11) }), json!([])),
        (
            json!({ "limit": 3, "since": { "offset": 4, "epoch": "x" } }),
            json!(112),
        ),
        (
            json!({ "limit": 3, "since": since(4), "reverse": true }),
            json!([3, 2, 1]),
        ),
        (
            json!({ "limit": 3, "since": since(1), "reverse": true }),
            json!([]),
        ),
        (json!({ "limit": -1, "since": since(5) }), json!([6, 7, 8, 9, 10])),
        (
            json!({ "limit": -1, "since": since(5), "reverse": true }),
            json!([4, 3, 2, 1]),
        ),
        (json!({ "since": since(5) }), json!([])),
        (
            json!({ "limit": 3, "since": since(11), "reverse": true }),
            json!([10, 9, 8]),
        ),
    ];
    for (number, (form, expected)) in (3..).zip(pages) {
        let mut body = form.clone();
        body["channel"] = json!("kept:a");
        let program = call(&mut client, "history", &body);
        assert_eq!(
            page_offsets(&program, "result"),
            expected,
            "a program, {form}: {program}"
        );
        let reply = request(&mut socket, &json!({ "id": number, "history": body }));
        assert_eq!(
            page_offsets(&reply, "history"),
            expected,
            "a client, {form}: {reply}"
        );
    }
    drop(socket);
    client.finish().expect("it ends");
}

#[test]
fn positions() {
    let (mut client, epoch) = serve();
    let all: Vec<u64> = (1..=10).collect();
    let own = epoch.as_str();
    for (offset, life, recovered, expected) in [
        (7, own, true, &all[7..]),
        (10, own, true, &all[10..]),
        (9, own, true, &all[9..]),
        (1, own, true, &all[1..]),
        (0, own, true, &all[..]),
        (11, own, false, &all[10..]),
        (7, "foreign", false, &all[10..]),
        (0, "foreign", false, &all[10..]),
        (10, "foreign", false, &all[10..]),
        (0, "", true, &all[..]),
        (7, "", false, &all[10..]),
    ] {
        let form = format!("{offset} of {life:?}");
        let mut socket = connected(&mut client);
        let position = json!({ "channel": "kept:a", "recover": true, "offset": offset, "epoch": life });
        let reply = request(&mut socket, &json!({ "id": 2, "subscribe": position }));
        let result = &reply["subscribe"];
        assert_eq!(
            result["recovered"].as_bool().unwrap_or_default(),
            recovered,
            "{form}: {reply}"
        );
        assert_eq!(
            offsets(&result["publications"]),
            json!(expected),
            "{form}: {reply}"
        );
        assert_eq!(result["epoch"], epoch, "{form}");
        // The position before the recovered publications.
        let position_told = if recovered { offset } else { 10 };
        assert_eq!(
            result["offset"].as_u64().unwrap_or_default(),
            position_told,
            "{form}: {reply}"
        );
        drop(socket);
    }
    client.finish().expect("it ends");
}
