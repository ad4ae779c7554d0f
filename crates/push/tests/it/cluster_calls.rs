//! Nodes of a cluster in virtual time, whose calls the test passes on: lists, descriptions and emulated commands across nodes.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use ringmain_push::Push;
use ringmain_push::cluster::{
    ClusterEvent, ClusterPort, ClusterRequest, ClusterRequestId, MirrorSync, MirroredState,
};
use ringmain_push::limits::{CLUSTER_CALLS, LISTED_CHANNELS};
use ringmain_web::App;
use ringmain_web::testing::{RawConnection, Setup, TestClient, TestReply};
use serde_json::{Value, json};

use crate::support::{Stream, options};

/// The time after which calls to a silent node finish without its result.
const CALL_TIMEOUT: Duration = Duration::from_secs(4);

struct Node {
    push: Push,
    client: TestClient,
    port: ClusterPort,
    /// It receives calls, and does not respond.
    is_silent: bool,
}

/// A call in flight: the node that has called, its request, and the results so far.
struct PendingCall {
    from: usize,
    request: ClusterRequestId,
    results: Vec<(u64, Option<Bytes>)>,
}

struct TestCluster {
    nodes: Vec<Node>,
    calls: BTreeMap<u64, PendingCall>,
}

impl TestCluster {
    fn new(count: usize) -> TestCluster {
        let nodes = (0..count).map(|number| {
            let push = Push::new();
            push.replace(options()).expect("options");
            let port = push.cluster_port().expect("the first port");
            port.set_name(&format!("n{number}").into());
            let setup = Setup {
                // Nodes must not draw the same names.
                seed: number as u64 + 1,
                workers: 2,
                ..Setup::default()
            };
            Node {
                client: TestClient::with(push.serve(App::new()), setup).expect("an application"),
                push,
                port,
                is_silent: false,
            }
        });
        TestCluster {
            nodes: nodes.collect(),
            calls: BTreeMap::new(),
        }
    }

    fn next_request(&self, node: usize) -> Option<ClusterRequest> {
        match self.nodes[node]
            .port
            .poll_request(&Context::from_waker(Waker::noop()))
        {
            Poll::Ready(request) => Some(request),
            Poll::Pending => None,
        }
    }

    fn deliver(&self, node: usize, event: ClusterEvent) {
        self.nodes[node].port.deliver(event).expect("room in the queue");
        self.nodes[node].port.wake_workers();
    }

    /// Passes requests on until the nodes have no more, for a few milliseconds of their time.
    fn exchange(&mut self) {
        for _ in 0..20 {
            for from in 0..self.nodes.len() {
                while let Some(request) = self.next_request(from) {
                    self.handle(from, request);
                }
                self.nodes[from].client.advance(Duration::from_millis(1));
            }
            let complete = |call: &PendingCall| call.results.iter().all(|(_, result)| result.is_some());
            let finished: Vec<u64> = self
                .calls
                .iter()
                .filter(|(_, call)| complete(call))
                .map(|(n, _)| *n)
                .collect();
            finished.into_iter().for_each(|number| self.finish(number));
        }
    }

    /// Lets calls time out.
    fn expire_calls(&mut self) {
        for node in &mut self.nodes {
            node.client.advance(CALL_TIMEOUT);
        }
        let pending: Vec<u64> = self.calls.keys().copied().collect();
        pending.into_iter().for_each(|number| self.finish(number));
        self.exchange();
    }

    fn finish(&mut self, number: u64) {
        let Some(PendingCall {
            from,
            request,
            results,
        }) = self.calls.remove(&number)
        else {
            return;
        };
        self.deliver(from, ClusterEvent::CallFinished { request, results });
    }

    fn handle(&mut self, from: usize, request: ClusterRequest) {
        match request {
            ClusterRequest::Interested { channel, .. } => {
                let state = MirroredState {
                    position: None,
                    floor: 0,
                    publications: Vec::new(),
                };
                let kind = MirrorSync::Initial;
                self.deliver(from, ClusterEvent::Synced { channel, state, kind });
            }
            ClusterRequest::Call { request, payload } => {
                let number = self.calls.keys().last().map_or(1, |last| last + 1);
                let others = (0..self.nodes.len()).filter(|node| *node != from);
                let results = others.clone().map(|node| (node as u64, None)).collect();
                for node in others.filter(|node| !self.nodes[*node].is_silent) {
                    let (from, payload) = (from as u64, payload.clone());
                    self.deliver(
                        node,
                        ClusterEvent::Call {
                            from,
                            call: number,
                            payload,
                        },
                    );
                }
                self.calls.insert(
                    number,
                    PendingCall {
                        from,
                        request,
                        results,
                    },
                );
            }
            ClusterRequest::CallResult {
                from: to,
                call,
                payload,
            } => {
                let call = self.calls.get_mut(&call).expect("a call in flight");
                assert_eq!(to, call.from as u64);
                let mut results = call.results.iter_mut();
                let result = results.find(|(node, _)| *node == from as u64);
                result.expect("a node that was called").1 = Some(payload);
            }
            ClusterRequest::Joined { .. }
            | ClusterRequest::Left { .. }
            | ClusterRequest::Uninterested { .. } => {}
            other => panic!("unexpected request: {other:?}"),
        }
    }

    fn post(&mut self, node: usize, path: &str, body: &Value) -> RawConnection {
        let body = body.to_string();
        let mut connection = self.nodes[node].client.raw();
        connection.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: key\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        connection
    }

    fn request(&mut self, node: usize, path: &str, body: &Value) -> TestReply {
        let mut connection = self.post(node, path, body);
        self.nodes[node].client.advance(Duration::from_millis(1));
        self.exchange();
        connection.try_reply("POST").expect("a response")
    }

    fn api(&mut self, node: usize, method: &str, body: &Value) -> Value {
        self.request(node, &format!("/api/{method}"), body).json()
    }

    /// Connects a client to a node, and subscribes it to channels.
    fn subscribe(&mut self, node: usize, channels: &[String]) -> Stream {
        let mut stream = Stream::lines(&mut self.nodes[node].client);
        for (id, channel) in (2..).zip(channels) {
            let command = json!({ "id": id, "subscribe": { "channel": channel } }).to_string();
            let status = stream.send_commands(&mut self.nodes[node].client, &command);
            assert_eq!(status, 204);
            self.exchange();
            let reply = stream.line();
            assert!(
                reply.starts_with(&format!("{{\"id\":{id},\"subscribe\"")),
                "{reply}"
            );
        }
        stream
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn channels_of_all_nodes_are_listed_with_the_sums_of_their_clients() {
    let mut cluster = TestCluster::new(3);
    let _clients = [
        cluster.subscribe(0, &names(&["a", "kept:b"])),
        cluster.subscribe(1, &names(&["a", "c"])),
        cluster.subscribe(1, &names(&["a"])),
    ];
    let all = json!({
        "channels": {"a": {"num_clients": 3}, "c": {"num_clients": 1}, "kept:b": {"num_clients": 1}},
        "num_nodes": 3,
        "num_missing_nodes": 0,
    });
    for node in 0..3 {
        assert_eq!(cluster.api(node, "channels", &json!({}))["result"], all, "{node}");
    }
    let kept = cluster.api(2, "channels", &json!({"pattern": "kept:*"}));
    assert_eq!(kept["result"]["channels"], json!({"kept:b": {"num_clients": 1}}));
    let invalid = cluster.api(2, "channels", &json!({"pattern": "["}));
    assert_eq!(invalid["error"]["code"], 107);
}

#[test]
fn a_node_that_does_not_respond_is_counted() {
    let mut cluster = TestCluster::new(3);
    let _clients = [
        cluster.subscribe(0, &names(&["a"])),
        cluster.subscribe(2, &names(&["a"])),
    ];
    cluster.nodes[2].is_silent = true;
    for (method, path) in [("channels", "channels"), ("info", "nodes")] {
        let mut connection = cluster.post(0, &format!("/api/{method}"), &json!({}));
        cluster.exchange();
        cluster.expire_calls();
        let response: Value = connection.try_reply("POST").expect("a response").json();
        let result = &response["result"];
        assert_eq!(
            (&result["num_nodes"], &result["num_missing_nodes"]),
            (&json!(2), &json!(1)),
            "{response}"
        );
        match path {
            "nodes" => assert_eq!(result["nodes"].as_array().map(Vec::len), Some(2), "{response}"),
            _ => assert_eq!(result["channels"], json!({"a": {"num_clients": 1}}), "{response}"),
        }
    }
}

#[test]
fn lists_that_exceed_one_result_are_complete() {
    let mut cluster = TestCluster::new(2);
    // Lists of other nodes, in two parts that do not end at the same name.
    let name = |number: usize| format!("c{number:04}");
    let part = |range: std::ops::Range<usize>, has_more: bool| {
        let channels: Vec<Value> = range.map(|number| json!([name(number), 1])).collect();
        Bytes::from(json!({"page": {"channels": channels, "has_more": has_more}}).to_string())
    };
    let _client = cluster.subscribe(0, &[name(1), name(9)]);
    let mut connection = cluster.post(0, "/api/channels", &json!({}));
    cluster.nodes[0].client.advance(Duration::from_millis(1));
    let mut asked = Vec::new();
    for results in [
        vec![
            (1, Some(part(0..5, true))),
            (2, Some(part(0..8, true))),
            (3, Some(part(0..2, false))),
        ],
        vec![
            (1, Some(part(5..6, false))),
            (2, Some(part(5..10, false))),
            (3, Some(part(0..0, false))),
        ],
    ] {
        let Some(ClusterRequest::Call { request, payload }) = cluster.next_request(0) else {
            panic!("expected a call");
        };
        asked.push(serde_json::from_slice::<Value>(&payload).expect("JSON")["channels"]["after"].clone());
        cluster.deliver(0, ClusterEvent::CallFinished { request, results });
        cluster.nodes[0].client.advance(Duration::from_millis(1));
    }
    assert_eq!(asked, [Value::Null, json!("c0004")]);
    let response: Value = connection.try_reply("POST").expect("a response").json();
    let expected: BTreeMap<String, Value> = (0..10)
        .map(|number| {
            let of_others = match number {
                0..2 => 3,
                2..6 => 2,
                _ => 1,
            };
            let here = u32::from(number == 1 || number == 9);
            (name(number), json!({"num_clients": of_others + here}))
        })
        .collect();
    let result = &response["result"];
    assert_eq!(result["channels"], json!(expected), "{response}");
    assert_eq!(result["num_nodes"], 4);
}

#[test]
fn more_channels_than_the_limit_are_an_error_on_every_node() {
    let mut cluster = TestCluster::new(1);
    let channels: Vec<Value> = (0..=LISTED_CHANNELS)
        .map(|number| json!([format!("c{number}"), 1]))
        .collect();
    let too_long = json!({"page": {"channels": channels, "has_more": false}});
    for result in [too_long, json!({"too_many": {}})] {
        let mut connection = cluster.post(0, "/api/channels", &json!({}));
        cluster.nodes[0].client.advance(Duration::from_millis(1));
        let Some(ClusterRequest::Call { request, .. }) = cluster.next_request(0) else {
            panic!("expected a call");
        };
        let results = vec![(1, Some(Bytes::from(result.to_string())))];
        cluster.deliver(0, ClusterEvent::CallFinished { request, results });
        cluster.nodes[0].client.advance(Duration::from_millis(1));
        let response: Value = connection.try_reply("POST").expect("a response").json();
        assert_eq!(response["error"]["code"], 106, "{response}");
    }
}

#[test]
fn info_describes_every_node() {
    let mut cluster = TestCluster::new(2);
    let client = cluster.subscribe(1, &names(&["a", "b"]));
    let response = cluster.api(0, "info", &json!({}));
    let nodes = response["result"]["nodes"].as_array().expect("nodes");
    let facts: Vec<_> = nodes
        .iter()
        .map(|node| {
            (
                &node["name"],
                &node["num_clients"],
                &node["num_channels"],
                &node["num_subs"],
            )
        })
        .collect();
    let (zero, one, two) = (json!(0), json!(1), json!(2));
    let expected = [
        (&json!("n0"), &zero, &zero, &zero),
        (&json!("n1"), &one, &two, &two),
    ];
    assert_eq!(facts, expected, "{response}");
    assert_eq!(nodes[1]["uid"], *client.node, "the name that clients receive");
    assert_eq!(nodes[1]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn emulated_commands_reach_their_session_at_another_node() {
    let mut cluster = TestCluster::new(3);
    let mut stream = cluster.subscribe(1, &[]);
    let body = |session: &str, node: &str| {
        let commands = "{\"id\":7,\"ping\":{}}\n{\"id\":8,\"subscribe\":{\"channel\":\"a\"}}";
        json!({ "session": session, "node": node, "data": commands })
    };
    let own = body(&stream.session, &stream.node);
    assert_eq!(cluster.request(2, "/emulation", &own).status(), 204);
    assert_eq!(stream.line(), r#"{"id":7,"ping":{}}"#);
    assert!(stream.line().starts_with(r#"{"id":8,"subscribe":{"#));
    // The client of a session that has ended is notified by the end of its stream.
    let ended = body(&format!("0.{}", "0".repeat(32)), &stream.node);
    assert_eq!(cluster.request(2, "/emulation", &ended).status(), 204);
    let unknown = body(&stream.session, "another");
    assert_eq!(cluster.request(2, "/emulation", &unknown).status(), 404);
    // A node that does not respond may be the one.
    cluster.nodes[1].is_silent = true;
    let mut connection = cluster.post(2, "/emulation", &own);
    cluster.exchange();
    cluster.expire_calls();
    assert_eq!(connection.try_reply("POST").expect("a response").status(), 503);
}

#[test]
fn messages_for_other_nodes_leave_room_for_the_server_api() {
    let mut cluster = TestCluster::new(2);
    cluster.nodes[1].is_silent = true;
    let session = format!("0.{}", "0".repeat(32));
    let unknown = json!({ "session": session, "node": "another", "data": "{\"id\":1,\"ping\":{}}" });
    // More than both workers of the node may have in flight.
    let count = 3 * CLUSTER_CALLS;
    let mut messages: Vec<RawConnection> = (0..count)
        .map(|_| cluster.post(0, "/emulation", &unknown))
        .collect();
    cluster.exchange();
    let mut channels = cluster.post(0, "/api/channels", &json!({}));
    cluster.exchange();
    cluster.expire_calls();
    let mut statuses = BTreeMap::new();
    for message in &mut messages {
        let status = message.try_reply("POST").expect("a response").status();
        *statuses.entry(status).or_insert(0) += 1;
    }
    assert_eq!(statuses, BTreeMap::from([(503, count)]));
    let response: Value = channels.try_reply("POST").expect("a response").json();
    assert_eq!(response["result"]["num_missing_nodes"], 1, "{response}");
}

#[test]
fn clients_that_move_are_asked_to_reconnect_over_a_second() {
    let mut cluster = TestCluster::new(1);
    let mut streams: Vec<Stream> = (0..30).map(|_| cluster.subscribe(0, &[])).collect();
    cluster.nodes[0].push.move_clients(9);
    let connected = |cluster: &TestCluster| cluster.nodes[0].push.report().clients;
    let mut left = Vec::new();
    for _ in 0..10 {
        cluster.nodes[0].client.advance(Duration::from_millis(120));
        left.push(connected(&cluster));
    }
    assert_eq!(left.last(), Some(&21), "{left:?}");
    assert!(
        left[0] > 21 && left.windows(2).all(|pair| pair[0] - pair[1] <= 4),
        "{left:?}"
    );
    let codes = cluster.nodes[0].push.report().disconnects;
    assert_eq!(codes, [(Some(3011), 9)]);
    let is_told = |stream: &mut Stream| {
        let received = String::from_utf8(stream.reply.connection().received()).expect("text");
        received.contains("3011")
    };
    assert_eq!(
        streams
            .iter_mut()
            .filter_map(|stream| is_told(stream).then_some(()))
            .count(),
        9
    );
}

#[test]
fn a_push_server_rejects_clients_and_serves_programs() {
    let mut cluster = TestCluster::new(2);
    cluster.nodes[0].port.refuse_clients();
    let reply = cluster.nodes[0].client.ws("/connection/websocket").refused();
    assert_eq!(
        (reply.status(), reply.header("retry-after").is_some()),
        (503, true)
    );
    assert!(reply.text().contains("push-server"), "{}", reply.text());
    for path in [
        "/connection/http_stream",
        "/connection/uni_http_stream",
        "/connection/sse",
    ] {
        let reply = cluster.nodes[0]
            .client
            .post(path)
            .body(r#"{"id":1,"connect":{}}"#)
            .send();
        assert_eq!(reply.status(), 503, "{path}");
    }
    let reached = cluster.api(0, "disconnect", &json!({"user": "u"}));
    assert_eq!(reached["result"]["num_nodes"], 2);
    let refused = cluster.nodes[0].push.report().refused;
    let by_role = refused.iter().find(|(reason, _)| reason.label() == "role");
    assert_eq!(by_role.map(|(_, count)| *count), Some(4));
    let _other = cluster.subscribe(1, &names(&["a"]));
}
