//! Nodes with links over real sockets: push servers in one process, each with its own workers and its own node.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ringmain_cluster::frame::{Frame, FrameDecoder};
use ringmain_cluster::links::{
    Cluster, LinkOptions, Load, LogLink, LogOptions, Membership, StartError, TlsFiles,
};
use ringmain_cluster::member::{Member, Role, Uid, owner};
use ringmain_engine::{Addr, Config, Engine, ListenOptions, Running};
use ringmain_push::{HistoryOptions, Namespace, Options, Push};
use ringmain_testkit::subscriber::Subscriber;
use ringmain_testkit::wait::until;
use ringmain_web::App;
use serde_json::{Value, json};

struct Server {
    running: Option<Running<Infallible>>,
    cluster: Option<Cluster>,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.cluster.take());
        if let Some(running) = self.running.take() {
            running.stop();
            let _ = running.join();
        }
    }
}

fn options() -> Options {
    let mut namespace = Namespace {
        recovery: true,
        history: true,
        presence: true,
        ..Namespace::default()
    };
    namespace.channel_options.presence = true;
    namespace.channel_options.history = Some(HistoryOptions {
        publications: 100,
        bytes: 1 << 20,
        ttl: Duration::from_secs(60),
    });
    Options {
        default_namespace: namespace,
        anonymous: true,
        api_key: Some("key".to_owned()),
        ..Options::default()
    }
}

fn link_options(name: &str, nodes: &[&Server]) -> LinkOptions {
    LinkOptions {
        name: name.into(),
        zone: "".into(),
        role: Role::All,
        weight: 1,
        listen: "127.0.0.1:0".parse().expect("an address"),
        membership: Membership::Names(
            nodes
                .iter()
                .map(|node| node.cluster().address().to_string())
                .collect(),
        ),
        rebalance: None,
        tls: None,
    }
}

impl Server {
    fn start(links: LinkOptions) -> Server {
        Server::start_with_log(links, None)
    }

    /// Starts a node whose log has this digest of its settings.
    fn start_with_log(links: LinkOptions, digest: Option<u64>) -> Server {
        let config = Config {
            workers: Some(2),
            pin: false,
            ..Config::default()
        };
        let mut engine = Engine::new(config).expect("an engine");
        let push = Push::new();
        push.replace(options()).expect("valid options");
        let port = push.cluster_port().expect("the first port");
        let site = push.serve(App::new()).build().expect("an application");
        let any: Addr = "127.0.0.1:0".parse().expect("an address");
        let listening = engine
            .listen(&any, &ListenOptions::default())
            .expect("a free port");
        let Addr::Inet(address) = listening else {
            panic!("expected an internet address");
        };
        let log = digest.map(|digest| LogLink {
            options: LogOptions {
                partitions: 4,
                takeover_time: Duration::from_secs(1),
                takeover_bytes: 1,
            },
            engine: "redis",
            digest,
            port: None,
        });
        let cluster = Cluster::start_with_log(links, port, log).expect("a node");
        let running = engine
            .start(move |start| site.server(start))
            .expect("the workers start");
        Server {
            running: Some(running),
            cluster: Some(cluster),
            address,
        }
    }

    fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("a node")
    }

    /// Starts nodes of which each dials those before it, and waits until all are linked.
    fn start_all(count: usize) -> Vec<Server> {
        let mut servers: Vec<Server> = Vec::new();
        for number in 0..count {
            let before: Vec<&Server> = servers.iter().collect();
            let links = link_options(&format!("n{number}"), &before);
            servers.push(Server::start(links));
        }
        for server in &servers {
            until("all nodes are linked", || {
                server.cluster().report().counts.nodes == count - 1
            });
        }
        servers
    }

    fn api(&self, method: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.address).expect("a server");
        stream
            .set_read_timeout(Some(ringmain_testkit::PATIENCE))
            .expect("a time limit");
        let request = format!(
            "POST /api/{method} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-API-Key: key\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let (_, body) = response.split_once("\r\n\r\n").expect("a head");
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{response}"))
    }

    fn publish(&self, channel: &str, number: u32) -> Value {
        let published = self.api("publish", &json!({"channel": channel, "data": {"n": number}}));
        assert!(published["result"]["offset"].is_u64(), "{published}");
        published["result"].clone()
    }

    fn subscribe(&self, channel: &str) -> Subscriber {
        Subscriber::to(&self.address.to_string(), &[channel])
    }
}

/// Returns a channel that this node owns.
fn channel_of(servers: &[Server], owner_index: usize) -> String {
    let members: Vec<_> = servers
        .iter()
        .map(|server| server.cluster().member().clone())
        .collect();
    let uid = members[owner_index].uid;
    let mut names = (0..).map(|number| format!("c{number}"));
    names
        .find(|name| owner(name, members.iter()) == Some(uid))
        .expect("a channel")
}

#[test]
fn a_publication_at_any_node_reaches_the_clients_of_all() {
    let servers = Server::start_all(3);
    for owner_index in 0..3 {
        let channel = channel_of(&servers, owner_index);
        let mut subscribers: Vec<_> = servers.iter().map(|server| server.subscribe(&channel)).collect();
        let mut epochs = Vec::new();
        for (number, server) in (0..).zip(&servers) {
            let position = server.publish(&channel, number);
            assert_eq!(position["offset"], number + 1);
            epochs.push(position["epoch"].clone());
        }
        assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "{epochs:?}");
        for subscriber in &mut subscribers {
            for number in 0..3 {
                assert_eq!(subscriber.publication(), (channel.clone(), json!({"n": number})));
            }
        }
        for server in &servers {
            let history = server.api("history", &json!({"channel": channel, "limit": 10}));
            let publications = history["result"]["publications"]
                .as_array()
                .expect("publications");
            assert_eq!(publications.len(), 3, "{history}");
            let present = server.api("presence_stats", &json!({"channel": channel}));
            assert_eq!(present["result"]["num_clients"], 3, "{present}");
        }
    }
}

#[test]
fn a_command_reports_the_nodes_that_have_run_it() {
    let servers = Server::start_all(2);
    let channel = channel_of(&servers, 1);
    let request = json!({"user": "u1", "channel": channel});
    let reached = servers[0].api("unsubscribe", &request);
    let expected = json!({"num_clients": 0, "num_nodes": 2, "num_missing_nodes": 0});
    assert_eq!(reached["result"], expected);
}

#[test]
fn the_end_of_an_owner_is_a_new_epoch_that_clients_are_notified_of() {
    let mut servers = Server::start_all(2);
    let channel = channel_of(&servers, 0);
    let mut subscriber = servers[1].subscribe(&channel);
    let before = servers[1].publish(&channel, 1);
    assert_eq!(subscriber.publication().1, json!({"n": 1}));
    drop(servers.remove(0));
    // The subscription is positioned: its client has to subscribe again.
    let push = subscriber.receive();
    assert_eq!(push["push"]["unsubscribe"]["code"], 2500, "{push}");
    let position = json!({
        "id": 9,
        "subscribe": {"channel": channel, "recover": true, "epoch": before["epoch"], "offset": 1},
    });
    subscriber.send(&position.to_string());
    let reply = subscriber.receive();
    assert_ne!(reply["subscribe"]["recovered"], true, "{reply}");
    assert_ne!(reply["subscribe"]["epoch"], before["epoch"], "{reply}");
    servers[0].publish(&channel, 2);
    assert_eq!(subscriber.publication().1, json!({"n": 2}));
}

#[test]
fn a_node_that_leaves_costs_its_channels_nothing() {
    let mut servers = Server::start_all(3);
    let channel = channel_of(&servers, 0);
    let mut subscriber = servers[1].subscribe(&channel);
    let before = servers[1].publish(&channel, 1);
    assert_eq!(subscriber.publication().1, json!({"n": 1}));
    servers[0].cluster().set_load(Load { clients: 7 });
    until("the load is known", || {
        let report = servers[1].cluster().report();
        report
            .nodes
            .iter()
            .any(|node| node.clients == 7 && !node.is_leaving)
    });
    servers[0].cluster().leave();
    until("the channels have other owners", || {
        servers[0].cluster().has_left()
    });
    let report = servers[2].cluster().report();
    assert!(report.nodes.iter().any(|node| node.is_leaving));
    drop(servers.remove(0));
    let after = servers[0].publish(&channel, 2);
    assert_eq!((&after["epoch"], &after["offset"]), (&before["epoch"], &json!(2)));
    assert_eq!(subscriber.publication().1, json!({"n": 2}));
    let history = servers[1].api("history", &json!({"channel": channel, "limit": 10}));
    assert_eq!(
        history["result"]["publications"].as_array().map(Vec::len),
        Some(2),
        "{history}"
    );
}

/// Returns a certificate of a new authority.
fn certificate() -> TlsFiles {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("an authority");
    let authority_pem = authority.pem();
    let issuer = rcgen::Issuer::new(params, key);
    let node_key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let node = params.signed_by(&node_key, &issuer).expect("a certificate");
    TlsFiles {
        certificate: node.pem().into_bytes(),
        key: node_key.serialize_pem().into_bytes(),
        authority: authority_pem.into_bytes(),
        server_name: None,
    }
}

fn names(server: &Server) -> Vec<String> {
    let report = server.cluster().report();
    report.nodes.iter().map(|node| node.name.to_string()).collect()
}

#[test]
fn nodes_with_certificates_of_one_authority_share_channels() {
    let files = certificate();
    let with_tls = |links: LinkOptions, files: &TlsFiles| LinkOptions {
        tls: Some(files.clone()),
        ..links
    };
    let first = Server::start(with_tls(link_options("a", &[]), &files));
    let stranger = Server::start(with_tls(link_options("x", &[&first]), &certificate()));
    let second = Server::start(with_tls(link_options("b", &[&first]), &files));
    until("the nodes are linked", || names(&second) == ["a"]);
    let mut subscriber = second.subscribe("news");
    first.publish("news", 1);
    assert_eq!(subscriber.publication().1, json!({"n": 1}));
    assert_eq!(stranger.cluster().report().counts.nodes, 0);
    assert_eq!(names(&first), ["b"]);
}

#[test]
fn nodes_with_other_settings_of_the_log_are_not_linked() {
    let other_log = |server: &Server| server.cluster().report().other_log;
    let one = Server::start_with_log(link_options("one", &[]), Some(1));
    let same = Server::start_with_log(link_options("same", &[&one]), Some(1));
    until("nodes of one log are linked", || names(&one) == ["same"]);
    // The nodes serve by now.
    until("no other log", || {
        other_log(&one).is_none() && other_log(&same).is_none()
    });
    for server in [&one, &same] {
        let nodes = server.api("info", &json!({}));
        assert_eq!(
            nodes["result"]["nodes"].as_array().map(Vec::len),
            Some(2),
            "{nodes}"
        );
    }
    for digest in [Some(2), None] {
        let other = Server::start_with_log(link_options("other", &[&one]), digest);
        until("the other log", || other_log(&other).as_deref() == Some("one"));
        assert_eq!((names(&other), names(&one)), (vec![], vec!["same".to_owned()]));
        assert_eq!(other_log(&one), None, "it was there first");
    }
}

#[test]
fn a_node_of_an_older_version_does_not_send_the_settings_of_its_log() {
    let one = Server::start_with_log(link_options("one", &[]), Some(1));
    let mut stream = TcpStream::connect(one.cluster().address()).expect("a node");
    stream
        .set_read_timeout(Some(ringmain_testkit::PATIENCE))
        .expect("a time limit");
    let mut bytes = Vec::new();
    let member = Member {
        uid: Uid(7),
        name: "old".into(),
        zone: "".into(),
        role: Role::All,
        weight: 1,
    };
    Frame::Hello {
        version: 3,
        oldest: 1,
        member,
    }
    .encode(&mut bytes);
    stream.write_all(&bytes).expect("it is read");
    until("a link", || names(&one) == ["old"]);
    // It skips the second frame.
    let mut decoder = FrameDecoder::default();
    let mut buffer = [0; 1024];
    let length = stream.read(&mut buffer).expect("frames");
    decoder.feed(&buffer[..length]);
    assert!(matches!(decoder.next_frame(), Ok(Some(Frame::Hello { .. }))));
    assert_eq!(decoder.next_frame(), Ok(Some(Frame::LogSettings(Some(1)))));
}

#[test]
fn links_without_tls_are_for_loopback_only() {
    let listen: SocketAddr = "0.0.0.0:0".parse().expect("an address");
    let links = LinkOptions {
        listen,
        ..link_options("a", &[])
    };
    let port = Push::new().cluster_port().expect("the first port");
    let error = Cluster::start(links, port).expect_err("an address that is not loopback");
    assert!(
        matches!(error, StartError::NotLoopback(address) if address == listen),
        "{error}"
    );
}
