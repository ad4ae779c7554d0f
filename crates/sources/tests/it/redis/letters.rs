//! Dead letters that wait, and commands for connections.

use ringmain_gateway::model::RecordFormat;
use ringmain_testkit::redis::{DurableRedis, RedisReply};

use super::{all, fill, pending, streams, until_acknowledged};
use crate::support::Node;

#[test]
fn dead_letters_wait_for_their_stream_and_hold_up_nothing() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut source = streams(&redis, &["a", "b"], "{stream}");
    source.mapping.dead_letters = Some("dead".into());
    source.mapping.in_flight = 8;
    // It is no stream: entries cannot be added.
    redis.call(&["SET", "dead", "a text"]);
    let mut node = Node::new();
    node.subscribe(&["a", "b"]);
    node.follow(&[("redis", &source)]);
    node.until("delivery", |node| node.report().delivers);
    redis.call(&["XADD", "a", "*", "data", "{"]);
    fill(&redis, "a", 0..100);
    node.until_received(100);
    node.until("a failure", |node| node.report().letters_fail);
    node.until("acknowledgements", |_| pending(&redis, "a") == 1);
    node.until("a stream that is read", |node| node.report().paused == 0);
    let report = node.report();
    assert_eq!((report.letters_waiting, report.failures), (1, 0), "{report:?}");
    // At the limit the stream is not read, the other one is.
    for _ in 0..7 {
        redis.call(&["XADD", "a", "*", "data", "{"]);
    }
    node.until("the limit", |node| node.report().paused == 1);
    fill(&redis, "a", 100..200);
    fill(&redis, "b", 0..50);
    node.until("the other stream", |node| node.numbers("b").len() == 50);
    assert_eq!(node.numbers("a"), all(0..100));
    redis.call(&["DEL", "dead"]);
    node.until_received(250);
    until_acknowledged(&mut node, &redis, &["a", "b"]);
    node.until("the letters", |node| node.report().letters_waiting == 0);
    let report = node.report();
    assert!(!report.letters_fail && report.letter_failures > 0, "{report:?}");
    assert_eq!(report.dead.iter().sum::<u64>(), 8);
    assert_eq!(redis.call(&["XLEN", "dead"]), RedisReply::Number(8));
    assert_eq!(node.numbers("a"), all(0..200));
}

#[test]
fn commands_for_connections_are_done_in_the_order_of_the_stream() {
    let Some(redis) = DurableRedis::start(&[]) else {
        return;
    };
    let mut source = streams(&redis, &["a"], "{stream}");
    source.mapping.format = RecordFormat::Commands;
    source.mapping.dead_letters = Some("dead".into());
    let mut node = Node::new();
    node.subscribe(&["x"]);
    node.follow(&[("redis", &source)]);
    node.until("delivery", |node| node.report().delivers);
    for number in 0..20 {
        let publish = format!(r#"{{"method":"publish","payload":{{"channel":"x","data":{number}}}}}"#);
        let unsubscribe = r#"{"method":"unsubscribe","payload":{"user":"ada","channel":"x"}}"#;
        redis.call(&["XADD", "a", "*", "data", &publish]);
        redis.call(&["XADD", "a", "*", "data", unsubscribe]);
    }
    redis.call(&["XADD", "a", "*", "data", r#"{"method":"explode","payload":{}}"#]);
    node.until_received(20);
    until_acknowledged(&mut node, &redis, &["a"]);
    assert_eq!(node.numbers("x"), all(0..20));
    let report = node.report();
    assert_eq!((report.published, report.dead), (40, [0, 1, 0, 0]));
}
