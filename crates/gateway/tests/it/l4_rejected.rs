//! Connections of TLS that are rejected: without an alert where another server would terminate TLS, with one where the gateway does.

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{self, Protocol, Target, WeightedBackend};
use ringmain_gateway::stats::ConnectionEnd;

use crate::l4::{alert, certificate, hello, with};
use crate::l4_rig::{Gates, echo, hosts, reserved, to};
use crate::support::End;
use crate::support::tls::Authority;

on_every_backend! {
    passthrough_is_refused_without_an_alert,
    a_listener_that_terminates_tls_refuses_with_an_alert,
}

/// Gateway API, `isConnectionRejected` of the conformance suite: the end of the connection or a reset, and no alert before it.
fn passthrough_is_refused_without_an_alert(engine: Config) {
    let refused = |config: model::Config, name: &str, fault: Fault| {
        let gates = Gates::open(engine.clone(), config);
        let mut client = gates.client(0);
        client.send(hello(name));
        assert_eq!(client.rest(), (Vec::new(), End::Reset), "{fault:?}");
        gates.await_fault(fault, 1);
        gates.await_ended(ConnectionEnd::Fault, 1);
        gates.shut_down();
    };
    let one = |listener: &[&str], route: &[&str]| {
        to(Protocol::TlsPassthrough, &[reserved()], |gate, stream, _| {
            gate.hostnames = hosts(listener);
            stream.hostnames = hosts(route);
        })
    };
    refused(one(&["*.example"], &[]), "other.test", Fault::NoListener);
    refused(one(&[], &["one.example"]), "other.example", Fault::NoRoute);
    refused(one(&[], &[]), "one.example", Fault::ConnectRefused);
    let with_backends = |change: &dyn Fn(&mut Vec<WeightedBackend>)| {
        to(Protocol::TlsPassthrough, &[reserved()], |_, stream, _| {
            change(&mut stream.backends);
        })
    };
    let broken = with_backends(&|backends| {
        backends[0].target = Target::Broken {
            reason: "no such Service".into(),
        };
    });
    refused(broken, "one.example", Fault::BrokenBackend);
    let none = with_backends(&Vec::clear);
    refused(none, "one.example", Fault::NoBackend);
    let unused = with_backends(&|backends| backends[0].weight = 0);
    refused(unused, "one.example", Fault::NoBackend);
    let empty = to(Protocol::TlsPassthrough, &[], |_, _, _| {});
    refused(empty, "one.example", Fault::NoEndpoints);
}

fn a_listener_that_terminates_tls_refuses_with_an_alert(engine: Config) {
    let authority = Authority::new("tests");
    let mut config = to(Protocol::Tls, &[echo("plain")], |listener, route, _| {
        listener.tls = with("ends.example");
        route.hostnames = hosts(&["ends.example"]);
    });
    config.certificates = vec![certificate(&authority, "ends.example")];
    let gates = Gates::open(engine, config);
    let mut client = gates.client(0);
    client.send(hello("other.example"));
    // `unrecognized_name`.
    assert_eq!(client.rest(), (alert(112), End::Orderly));
    gates.await_fault(Fault::NoRoute, 1);
    gates.shut_down();
}
