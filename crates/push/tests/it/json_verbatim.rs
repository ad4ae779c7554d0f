//! Data reaches clients of the JSON format unchanged: numbers beyond the precision of a float, escapes, duplicate names. White space
//! between tokens alone may be removed, since a line ends a message.

use serde_json::Value;

use crate::support::{options, serve_by};

const TEXTS: [&str; 18] = [
    "1.0",
    "1e400",
    "-0",
    "0.1000",
    "12345678901234567890",
    "1234567890123456789012345678901234567890.0987654321",
    "1E+2",
    r#""\u00e9\ud83d\ude00""#,
    "\"é😀\"",
    r#""<&>\u2028\/\\ \" ""#,
    "\"\u{2028}\u{2029}\u{7f}\u{0085}\"",
    r#"{"a":1,"a":2}"#,
    r#"{"__proto__":{},"":null}"#,
    "null",
    "false",
    r#""""#,
    "[]",
    "[[[[]]],{}]",
];

/// Returns the bytes of `data` in a line, which ends with an offset.
fn data(line: &str) -> &str {
    let from = line.find(r#""data":"#).expect("data") + 7;
    let until = line.rfind(r#","offset":"#).expect("an offset");
    &line[from..until]
}

#[test]
fn numbers_and_texts_are_unchanged() {
    let mut client = serve_by(2, options());
    let mut socket = client.ws("/connection/websocket").open();
    let mut other = client.ws("/connection/websocket").open();
    for socket in [&mut socket, &mut other] {
        socket.send_text(r#"{"id":1,"connect":{}}"#);
        socket.text();
    }
    socket.send_text(r#"{"id":2,"subscribe":{"channel":"kept:a"}}"#);
    socket.text();
    for text in TEXTS {
        let body = format!(r#"{{"channel":"kept:a","data":{text}}}"#);
        let reply = client
            .post("/api/publish")
            .header("x-api-key", "key")
            .body(body)
            .send();
        assert_eq!(reply.status(), 200, "{text}");
        assert_eq!(data(&socket.text()), text, "from a program");
        let command = format!(r#"{{"id":3,"publish":{{"channel":"kept:a","data":{text}}}}}"#);
        other.send_text(command);
        let push = socket.text();
        // Behind the data is its publisher.
        let from = push.find(r#""data":"#).expect("data") + 7;
        assert!(
            push[from..].starts_with(&format!("{text},\"")),
            "from a client: {text} in {push}"
        );
        other.text();
    }
    let spaced = "{ \"b\" : [ 1 ,\n\t2 ] ,\r\n \"a\" : \" x \" }";
    let body = format!(r#"{{"channel":"kept:a","data":{spaced}}}"#);
    let reply = client
        .post("/api/publish")
        .header("x-api-key", "key")
        .body(body)
        .send();
    assert_eq!(reply.status(), 200);
    let line = socket.text();
    let found = data(&line);
    assert!(!found.contains('\n'), "a line of its own: {found}");
    let value = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(value(found), value(spaced));
    drop((socket, other));
    client.finish().expect("it ends");
}
