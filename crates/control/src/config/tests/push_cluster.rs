//! The keys of a cluster of push servers.

use std::net::SocketAddr;
use std::sync::Arc;

use ringmain_gateway::model::{
    Fraction, PushCluster, PushMembership, PushRebalance, PushRole, PushService, PushServicePort,
};

use super::{all_errors_of, valid_config};

fn with(cluster: &str) -> String {
    format!(
        "listen: :80\nto: http://127.0.0.1:1\nauthorities: {{own: own.pem}}\ncertificates: {{me: {{chain: a.crt, key: a.key}}}}\npush:\n  cluster: {cluster}\n"
    )
}

#[test]
fn a_node_is_read_with_its_defaults() {
    let config = valid_config(&with(
        "{listen: '127.0.0.1:7946', nodes: ['127.0.0.1:7947', 'push:7946']}",
    ));
    let push = config.push.as_deref().expect("push");
    let cluster = push.cluster.as_deref().expect("a cluster");
    let listen: SocketAddr = "127.0.0.1:7946".parse().expect("an address");
    assert_eq!(cluster.listen, listen);
    assert_eq!((&*cluster.name, cluster.weight), ("127.0.0.1:7946", 1));
    let nodes: Vec<Arc<str>> = vec!["127.0.0.1:7947".into(), "push:7946".into()];
    assert_eq!(cluster.nodes, PushMembership::Names(nodes));
    assert_eq!((cluster.role, cluster.zone.as_deref()), (PushRole::All, None));
    assert_eq!(cluster.tls, None);
}

fn cluster_of(text: &str) -> Arc<PushCluster> {
    let push = valid_config(text).push.expect("push");
    push.cluster.clone().expect("a cluster")
}

#[test]
fn a_node_has_a_role_and_a_zone() {
    for (role, expected) in [
        ("all", PushRole::All),
        ("push-gateway", PushRole::PushGateway),
        ("push-server", PushRole::PushServer),
    ] {
        let text = with(&format!(
            "{{listen: '127.0.0.1:7946', nodes: 'push:7946', role: {role}, zone: eu-2}}"
        ));
        let cluster = cluster_of(&text);
        assert_eq!((cluster.role, cluster.zone.as_deref()), (expected, Some("eu-2")));
        // The zone of the process is the default.
        let text = format!("zone: eu-1\n{}", text.replace(", zone: eu-2", ""));
        assert_eq!(cluster_of(&text).zone.as_deref(), Some("eu-1"));
    }
}

#[cfg(feature = "kubernetes")]
#[test]
fn nodes_are_those_of_a_service() {
    for (keys, namespace, port) in [
        (
            "service: push-nodes, port: cluster",
            None,
            PushServicePort::Name("cluster".into()),
        ),
        (
            "service: push-nodes, namespace: live, port: 7946",
            Some("live".into()),
            PushServicePort::Number(7946),
        ),
    ] {
        let nodes = format!("nodes: {{kubernetes: {{{keys}}}}}");
        let expected = PushMembership::Kubernetes(PushService {
            service: "push-nodes".into(),
            namespace,
            port,
        });
        let text = with(&format!("{{listen: '127.0.0.1:7946', {nodes}}}"));
        assert_eq!(cluster_of(&text).nodes, expected);
        let tls = "tls: {certificate: me, authorities: own, server_name: push}";
        let text = with(&format!("{{listen: '0.0.0.0:7946', {nodes}, {tls}}}"));
        assert_eq!(cluster_of(&text).nodes, expected);
    }
}

#[cfg(feature = "kubernetes")]
#[test]
fn invalid_services_are_reported() {
    for (nodes, expected) in [
        ("{}", "expected the key `kubernetes`, found none"),
        (
            "{kubernetes: {}}",
            "expected the keys `service` and `port`, found neither",
        ),
        (
            "{kubernetes: {service: a}}",
            "expected the keys `service` and `port`, found one",
        ),
        (
            "{kubernetes: {service: A_b, port: 1}}",
            "expected a name of Kubernetes: lowercase letters, digits and `-`, at most 63 characters, found `A_b`",
        ),
        (
            "{kubernetes: {service: a, port: 70000}}",
            "expected the name of a port (at most 15 lowercase letters, digits and `-`), or a number from 1 to 65535, found `70000`",
        ),
        (
            "['a:1', {kubernetes: {service: a, port: 1}}]",
            "expected either nodes, each `HOST:PORT`, or the key `kubernetes` alone, found both",
        ),
        (
            "{kubernetes: {service: a, port: 1}}, tls: {certificate: me, authorities: own}",
            "expected the key `tls.server_name` with `nodes.kubernetes`",
        ),
        ("'a:1', role: server", "expected one of `all`"),
        ("'a:1', zone: ' a'", "expected the name of a zone"),
    ] {
        let text = with(&format!("{{listen: '127.0.0.1:1', nodes: {nodes}}}"));
        let errors = all_errors_of(&text).join("\n");
        assert!(errors.contains(expected), "{nodes}: {errors}");
    }
}

#[test]
fn links_that_leave_the_host_have_certificates() {
    let config = valid_config(&with(
        "{listen: '10.0.0.5:7946', nodes: 'push:7946', name: a, weight: 3, tls: {certificate: me, authorities: own, server_name: push}}",
    ));
    let cluster = config.push.as_deref().and_then(|push| push.cluster.as_deref());
    let cluster = cluster.expect("a cluster");
    assert_eq!((&*cluster.name, cluster.weight), ("a", 3));
    let tls = cluster.tls.as_ref().expect("TLS");
    assert_eq!(tls.server_name.as_deref(), Some("push"));
    assert_eq!(&*tls.certificate.name, "me");
    assert!(!tls.authorities.is_empty());
}

#[test]
fn incomplete_and_invalid_keys_are_reported() {
    for (cluster, expected) in [
        ("{}", "expected the keys `listen` and `nodes`, found neither"),
        (
            "{nodes: 'a:1'}",
            "expected the keys `listen` and `nodes`, found one",
        ),
        (
            "{listen: 'a:1', nodes: 'a:1'}",
            "expected an address, `IP:PORT`, found `a:1`",
        ),
        (
            "{listen: '127.0.0.1:1', nodes: a}",
            "expected a node, `HOST:PORT`, found `a`",
        ),
        (
            "{listen: '127.0.0.1:1', nodes: 'a:1', weight: 65}",
            "expected a weight from 1 to 64, found 65",
        ),
        (
            "{listen: '10.0.0.1:1', nodes: 'a:1'}",
            "expected the key `tls`, or a loopback address in `listen`",
        ),
        (
            "{listen: '127.0.0.1:1', nodes: 'a:1', tls: {certificate: me}}",
            "expected the keys `certificate` and `authorities`",
        ),
        (
            "{listen: '127.0.0.1:1', nodes: 'a:1', tls: {certificate: other, authorities: own}}",
            "other",
        ),
        (
            "{listen: '127.0.0.1:1', nodes: 'a:1'}\n  nats: {n: {servers: 'nats://a', subjects: b}}",
            "expected no consumers of brokers in a cluster",
        ),
    ] {
        let errors = all_errors_of(&with(cluster)).join("\n");
        assert!(errors.contains(expected), "{cluster}: {errors}");
    }
}

#[test]
fn a_node_has_no_state_on_disk() {
    let text = with("{listen: '127.0.0.1:1', nodes: 'a:1'}") + "  state_dir: /var/lib/ringmain/push\n";
    let errors = all_errors_of(&text);
    assert_eq!(errors.len(), 1, "{errors:?}");
    let expected = "c.yaml:6:12: expected no `state_dir` in a cluster";
    assert!(errors[0].starts_with(expected), "{errors:?}");
}

#[test]
fn rebalancing_has_defaults_and_limits() {
    let rebalance_of = |keys: &str| {
        let text = with(&format!("{{listen: '127.0.0.1:1', nodes: 'a:1'{keys}}}"));
        let push = valid_config(&text).push.expect("push");
        push.cluster.as_ref().expect("a cluster").rebalance
    };
    let rebalance = |above_percent, until_percent, part, of| {
        Some(PushRebalance {
            above_percent,
            until_percent,
            rate: Fraction { part, of },
        })
    };
    assert_eq!(rebalance_of(""), None);
    assert_eq!(rebalance_of(", rebalance: {}"), rebalance(120, 105, 5, 1000));
    assert_eq!(
        rebalance_of(", rebalance: {above: 1.5, until: 1, rate: 2%}"),
        rebalance(150, 100, 20_000, 1_000_000)
    );
    for (keys, expected) in [
        (
            "{above: 1.05}",
            "expected a value of `until` below that of `above`, found 1.05 and 1.05",
        ),
        (
            "{above: 0.9}",
            "expected a number from 1 to 100 with at most two decimals, such as 1.2, found `0.9`",
        ),
        (
            "{until: 1.234}",
            "expected a number from 1 to 100 with at most two decimals",
        ),
        ("{rate: 0%}", "expected a `rate` above 0"),
        ("{rate: 101%}", "expected a share of at most the whole"),
    ] {
        let text = with(&format!(
            "{{listen: '127.0.0.1:1', nodes: 'a:1', rebalance: {keys}}}"
        ));
        let errors = all_errors_of(&text).join("\n");
        assert!(errors.contains(expected), "{keys}: {errors}");
    }
}
