//! The addresses of nodes, from slices as written and from a server that a test has written.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{PushService, PushServicePort};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::{Nodes, follow_nodes};
use crate::api::Api;
use crate::limits::PUSH_NODES;
use crate::objects::{Key, Kind, Object};

/// An endpoint, and its conditions `ready` and `serving`.
fn endpoint(address: &str, ready: Option<bool>, serving: Option<bool>) -> Value {
    json!({"addresses": [address], "conditions": {"ready": ready, "serving": serving}})
}

fn slice(name: &str, version: u64, endpoints: &[Value]) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "live", "resourceVersion": version.to_string(),
            "labels": {"kubernetes.io/service-name": "push-nodes"},
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080}, {"name": "cluster", "port": 7946}],
    })
}

fn object(slice: Value) -> Object {
    Object::from_value(Kind::EndpointSlice, slice).expect("an EndpointSlice")
}

fn by_name() -> PushServicePort {
    PushServicePort::Name("cluster".into())
}

fn texts(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

fn apply(nodes: &mut Nodes, slices: &[Value]) -> Option<Vec<String>> {
    let put = slices.iter().cloned().map(object).collect();
    nodes.apply(put, &[]).map(|addresses| texts(&addresses))
}

#[test]
fn endpoints_of_all_slices_are_nodes() {
    let slices = [
        slice(
            "a",
            1,
            &[
                endpoint("10.0.0.1", Some(true), None),
                endpoint("10.0.0.2", None, None),
            ],
        ),
        slice(
            "b",
            1,
            &[
                endpoint("fd00::1", Some(true), Some(true)),
                endpoint("name.example", None, None),
            ],
        ),
    ];
    let named = apply(&mut Nodes::new(by_name()), &slices).expect("addresses");
    assert_eq!(named, ["10.0.0.1:7946", "10.0.0.2:7946", "[fd00::1]:7946"]);
    let numbered = apply(&mut Nodes::new(PushServicePort::Number(9)), &slices).expect("addresses");
    assert_eq!(numbered, ["10.0.0.1:9", "10.0.0.2:9", "[fd00::1]:9"]);
    let other = PushServicePort::Name("other".into());
    assert_eq!(apply(&mut Nodes::new(other), &slices), Some(Vec::new()));
}

#[test]
fn a_node_joins_when_it_is_up_and_stays_until_it_is_deleted() {
    let mut nodes = Nodes::new(by_name());
    let starting = endpoint("10.0.0.1", Some(false), Some(false));
    let terminating = endpoint("10.0.0.1", Some(false), Some(true));
    assert_eq!(
        apply(&mut nodes, &[slice("a", 1, std::slice::from_ref(&starting))]),
        Some(Vec::new())
    );
    let joined = apply(&mut nodes, &[slice("a", 2, &[terminating])]);
    assert_eq!(joined.as_deref(), Some(&["10.0.0.1:7946".to_owned()][..]));
    // It drains, and hands its channels over to nodes that it has links to.
    assert_eq!(
        apply(&mut nodes, &[slice("a", 3, std::slice::from_ref(&starting))]),
        None
    );
    let gone = nodes.apply(Vec::new(), &[Key::new(Kind::EndpointSlice, "live", "a")]);
    assert_eq!(gone.as_deref(), Some(&[][..]));
    assert_eq!(apply(&mut nodes, &[slice("a", 4, &[starting])]), None);
}

#[test]
fn addresses_beyond_the_limit_are_left_out() {
    let all: Vec<_> = (0..=PUSH_NODES)
        .map(|number| {
            endpoint(
                &format!("10.0.{}.{}", number / 250, number % 250),
                Some(true),
                None,
            )
        })
        .collect();
    let addresses = apply(&mut Nodes::new(by_name()), &[slice("a", 1, &all)]).expect("addresses");
    assert_eq!(addresses.len(), PUSH_NODES);
}

/// A request that the server has read: its path and query, and the connection.
type Request = (String, TcpStream);

/// Serves one request of each connection by the test.
async fn serve(listener: TcpListener, requests: mpsc::Sender<Request>) {
    while let Ok((stream, _)) = listener.accept().await {
        let requests = requests.clone();
        tokio::spawn(async move {
            let mut reader = BufReader::new(stream);
            let mut first = String::new();
            reader.read_line(&mut first).await.expect("a request");
            let mut line = String::new();
            while reader.read_line(&mut line).await.is_ok_and(|length| length > 2) {
                line.clear();
            }
            let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
            let _ = requests.send((target, reader.into_inner())).await;
        });
    }
}

/// Responds, and closes the connection.
async fn respond(mut stream: TcpStream, status: &str, body: &Value) {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + &body).as_bytes())
        .await
        .expect("a response");
    let _ = stream.shutdown().await;
    let _ = stream.read(&mut [0; 16]).await;
}

async fn begin_watch(stream: &mut TcpStream) {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("a head");
}

async fn send_event(stream: &mut TcpStream, kind: &str, slice: &Value) {
    let line = json!({"type": kind, "object": slice}).to_string() + "\n";
    stream.write_all(line.as_bytes()).await.expect("an event");
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future)
        .await
        .expect("within 20 s")
}

async fn next_list(addresses: &mut watch::Receiver<Arc<[SocketAddr]>>) -> Vec<String> {
    within(addresses.changed()).await.expect("a change");
    texts(&addresses.borrow_and_update())
}

#[test]
fn a_service_is_listed_and_watched() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, mut requests) = mpsc::channel(8);
        tokio::spawn(serve(listener, sender));
        let service = PushService {
            service: "push-nodes".into(),
            namespace: None,
            port: by_name(),
        };
        let (sender, mut addresses) = watch::channel(Arc::from([]));
        let following = tokio::spawn(follow_nodes(Api::of_test(&url), service, sender));
        let list = |version: &str, slices: &[Value]| json!({"kind": "EndpointSliceList", "metadata": {"resourceVersion": version}, "items": slices});

        // A failure leaves the addresses as they are, and is retried.
        let (target, stream) = within(requests.recv()).await.expect("a list");
        let path = "/apis/discovery.k8s.io/v1/namespaces/live/endpointslices?";
        assert!(target.starts_with(path), "{target}");
        assert!(target.contains("labelSelector=kubernetes.io%2Fservice-name%3Dpush-nodes"), "{target}");
        let denied = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"});
        respond(stream, "403 Forbidden", &denied).await;

        let (target, stream) = within(requests.recv()).await.expect("a list");
        assert!(target.starts_with(path) && !target.contains("watch="), "{target}");
        let one = endpoint("127.0.0.1", Some(true), None);
        respond(stream, "200 OK", &list("7", &[slice("a", 5, std::slice::from_ref(&one))])).await;
        assert_eq!(next_list(&mut addresses).await, ["127.0.0.1:7946"]);

        let (target, mut stream) = within(requests.recv()).await.expect("a watch");
        assert!(target.contains("watch=true") && target.contains("resourceVersion=7"), "{target}");
        assert!(target.contains("labelSelector=kubernetes.io%2Fservice-name%3Dpush-nodes"), "{target}");
        begin_watch(&mut stream).await;
        let two = endpoint("127.0.0.2", Some(true), None);
        send_event(&mut stream, "MODIFIED", &slice("a", 8, &[one, two.clone()])).await;
        assert_eq!(next_list(&mut addresses).await, ["127.0.0.1:7946", "127.0.0.2:7946"]);
        send_event(&mut stream, "MODIFIED", &slice("a", 9, &[two])).await;
        assert_eq!(next_list(&mut addresses).await, ["127.0.0.2:7946"]);

        // A watch that is cut continues from the last version; an expired version is listed again.
        drop(stream);
        let (target, mut stream) = within(requests.recv()).await.expect("a watch");
        assert!(target.contains("resourceVersion=9"), "{target}");
        begin_watch(&mut stream).await;
        let expired = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "old"});
        send_event(&mut stream, "ERROR", &expired).await;
        let (target, stream) = within(requests.recv()).await.expect("a list");
        assert!(!target.contains("watch="), "{target}");
        respond(stream, "200 OK", &list("20", &[])).await;
        assert_eq!(next_list(&mut addresses).await, Vec::<String>::new());

        // Without a receiver it ends.
        drop(addresses);
        within(following).await.expect("no panic");
    });
}
