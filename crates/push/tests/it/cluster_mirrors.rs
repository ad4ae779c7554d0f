//! A node's mirror of a channel, whose owner is the test: subscribers wait for its state, and for publications that they have received at another
//! node.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::history::{Epoch, StreamPosition};
use ringmain_hub::protocol::Published;
use ringmain_push::Push;
use ringmain_push::cluster::{
    ClusterEvent, ClusterPort, ClusterPublishOutcome, ClusterRequest, MirrorSync, MirroredState,
};
use ringmain_push::limits::CLUSTER_STATE_TIMEOUT;
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient};
use serde_json::{Value, json};

use crate::support::{Stream, options};

const CHANNEL: &str = "kept:a";
const EPOCH: u64 = 0xe;

struct Node {
    client: TestClient,
    port: ClusterPort,
    _push: Push,
}

impl Node {
    fn new() -> Node {
        let push = Push::new();
        push.replace(options()).expect("options");
        let port = push.cluster_port().expect("the first port");
        // Clients are on both workers in turns; one of these has the channel.
        let setup = Setup {
            workers: 2,
            ..Setup::default()
        };
        Node {
            client: TestClient::with(push.serve(App::new()), setup).expect("an application"),
            port,
            _push: push,
        }
    }

    /// Returns the requests of the workers, by name.
    fn requests(&mut self) -> Vec<&'static str> {
        self.client.advance(Duration::from_millis(1));
        let mut names = Vec::new();
        let context = Context::from_waker(Waker::noop());
        while let Poll::Ready(request) = self.port.poll_request(&context) {
            names.push(match request {
                ClusterRequest::Interested { .. } => "interested",
                ClusterRequest::Uninterested { .. } => "uninterested",
                _ => "other",
            });
        }
        names
    }

    fn deliver(&mut self, event: ClusterEvent) {
        self.port.deliver(event).expect("room in the queue");
        self.port.wake_workers();
        self.client.advance(Duration::from_millis(1));
    }

    /// The state of the owner: a number of publications, none retained.
    fn sync(&mut self, offset: u64) {
        self.sync_with(offset, &[]);
    }

    /// The state of the owner, with the last publications.
    fn sync_with(&mut self, offset: u64, retained: &[u64]) {
        let epoch = Epoch::new(EPOCH);
        let publications: Vec<_> = retained
            .iter()
            .map(|offset| (*offset, published(*offset)))
            .collect();
        self.deliver(ClusterEvent::Synced {
            channel: CHANNEL.into(),
            state: MirroredState {
                position: Some(StreamPosition { offset, epoch }),
                floor: retained.first().map_or(offset, |first| first - 1),
                publications,
            },
            kind: MirrorSync::Initial,
        });
    }

    fn publish(&mut self, offset: u64) {
        self.deliver(ClusterEvent::Publication {
            channel: CHANNEL.into(),
            offset,
            published: published(offset),
        });
    }

    fn send(&mut self, stream: &Stream, command: &Value) {
        assert_eq!(stream.send_commands(&mut self.client, &command.to_string()), 204);
    }
}

fn published(offset: u64) -> Arc<Published> {
    Arc::new(Published {
        data: Bytes::from(offset.to_string()),
        ..Published::default()
    })
}

fn subscribe() -> Value {
    json!({ "id": 2, "subscribe": { "channel": CHANNEL } })
}

fn recover_from(offset: u64) -> Value {
    let epoch = Epoch::new(EPOCH).to_string();
    json!({ "id": 2, "subscribe": { "channel": CHANNEL, "recover": true, "offset": offset, "epoch": epoch } })
}

fn json_line(stream: &mut Stream) -> Value {
    serde_json::from_str(&stream.line()).expect("JSON")
}

fn offset_pushed(line: &Value) -> Option<u64> {
    line["push"]["pub"]["offset"].as_u64()
}

#[test]
fn a_client_ahead_of_the_mirror_waits_for_what_it_has_received_elsewhere() {
    let mut node = Node::new();
    let mut first = Stream::lines(&mut node.client);
    node.send(&first, &subscribe());
    node.requests();
    node.sync(3);
    assert_eq!(json_line(&mut first)["subscribe"]["offset"], 3);

    let mut ahead = Stream::lines(&mut node.client);
    node.send(&ahead, &recover_from(5));
    node.publish(4);
    node.publish(5);
    let reply = json_line(&mut ahead);
    assert_eq!(
        (&reply["subscribe"]["recovered"], &reply["subscribe"]["offset"]),
        (&json!(true), &json!(5)),
        "{reply}"
    );
    assert!(reply["subscribe"].get("publications").is_none(), "{reply}");
    node.publish(6);
    assert_eq!(offset_pushed(&json_line(&mut ahead)), Some(6));
    for offset in 4..=6 {
        assert_eq!(offset_pushed(&json_line(&mut first)), Some(offset));
    }
}

#[test]
fn a_position_that_the_owner_never_had_is_not_waited_for_forever() {
    let mut node = Node::new();
    let mut first = Stream::lines(&mut node.client);
    node.send(&first, &subscribe());
    node.requests();
    node.sync(3);
    json_line(&mut first);

    let mut liar = Stream::lines(&mut node.client);
    node.send(&liar, &recover_from(1 << 40));
    node.client
        .advance(CLUSTER_STATE_TIMEOUT + Duration::from_secs(1));
    let reply = json_line(&mut liar);
    assert!(reply["subscribe"].get("recovered").is_none(), "{reply}");
    assert_eq!(reply["subscribe"]["offset"], 3, "{reply}");
    node.publish(4);
    assert_eq!(offset_pushed(&json_line(&mut liar)), Some(4));
}

#[test]
fn a_subscriber_behind_one_that_has_left_keeps_the_mirror() {
    let mut node = Node::new();
    let leaving = Stream::lines(&mut node.client);
    let mut staying = Stream::lines(&mut node.client);
    node.send(&leaving, &subscribe());
    assert_eq!(node.requests(), ["interested"]);
    node.send(
        &leaving,
        &json!({ "id": 3, "unsubscribe": { "channel": CHANNEL } }),
    );
    node.send(&staying, &subscribe());
    node.sync(0);
    assert_eq!(json_line(&mut staying)["subscribe"]["recoverable"], true);
    assert!(!node.requests().contains(&"uninterested"));
    node.publish(1);
    assert_eq!(offset_pushed(&json_line(&mut staying)), Some(1));
}

#[test]
fn a_publication_without_an_owner_is_not_confirmed() {
    let mut node = Node::new();
    for (outcome, status) in [
        (ClusterPublishOutcome::Unreachable, 503),
        (ClusterPublishOutcome::Published(None), 200),
    ] {
        let body = json!({ "channel": "news", "data": 1 }).to_string();
        let mut connection = node.client.raw();
        let length = body.len();
        connection.send(format!(
            "POST /api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: key\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        node.client.advance(Duration::from_millis(1));
        let Poll::Ready(ClusterRequest::Publish { request, .. }) =
            node.port.poll_request(&Context::from_waker(Waker::noop()))
        else {
            panic!("expected a publication for the owner");
        };
        node.deliver(ClusterEvent::Published { request, outcome });
        let reply = connection.try_reply("POST").expect("a response");
        assert_eq!(reply.status(), status);
    }
}

#[test]
fn a_whole_state_is_not_kept_from_subscribers_that_are_already_here() {
    let mut node = Node::new();
    let mut first = Stream::lines(&mut node.client);
    node.send(&first, &subscribe());
    node.requests();
    node.sync(3);
    json_line(&mut first);

    node.sync_with(5, &[3, 4, 5]);
    for offset in 4..=5 {
        assert_eq!(offset_pushed(&json_line(&mut first)), Some(offset));
    }
    // It does not continue where the subscriber is.
    node.sync_with(9, &[8, 9]);
    let line = json_line(&mut first);
    assert_eq!(line["push"]["unsubscribe"]["code"], 2500, "{line}");
}

/// With a log the position of a quiet channel grows without publications, and mirrors have it from different times.
#[test]
fn a_client_that_is_ahead_of_a_quiet_channel_recovers() {
    let mut node = Node::new();
    let mut first = Stream::lines(&mut node.client);
    node.send(&first, &subscribe());
    node.requests();
    node.sync_with(9, &[5]);
    json_line(&mut first);

    let mut ahead = Stream::lines(&mut node.client);
    node.send(&ahead, &recover_from(14));
    assert!(!node.requests().contains(&"interested"));
    node.client.advance(Duration::from_secs(2));
    let requests = node.requests();
    let states = requests.iter().filter(|name| **name == "interested");
    assert_eq!(states.count(), 1, "{requests:?}");
    node.sync_with(14, &[5]);
    let reply = json_line(&mut ahead);
    assert_eq!(reply["subscribe"]["recovered"], true, "{reply}");
    node.publish(20);
    assert_eq!(offset_pushed(&json_line(&mut ahead)), Some(20));
    assert_eq!(offset_pushed(&json_line(&mut first)), Some(20));
}
