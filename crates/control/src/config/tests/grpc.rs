//! gRPC routes: services and methods by name, and their matches.

use ringmain_gateway::model::{Action, Match, MethodName, Path, PathMatch, UpstreamProtocol};

use super::{all_errors_of, valid_config};

fn post(path: PathMatch) -> Vec<Match> {
    vec![Match {
        path,
        method: Some(MethodName::parse("POST").expect("a method")),
        ..Match::default()
    }]
}

#[test]
fn a_service_and_a_method_are_paths_that_are_posted_to() {
    let config = valid_config(
        "listen: :80\nroutes:\n  calls:\n    rules:\n      \
         - {match: {grpc: shop.v1.Cart/Add}, to: 'h2c://127.0.0.1:50051', grpc_web: true}\n      \
         - {match: {grpc: shop.v1.Cart}, to: 'h2c://127.0.0.1:50051'}\n",
    );
    let path = |text: &str| Path::parse(text).expect("a path");
    let rules = &config.routes[0].rules;
    assert_eq!(
        rules[0].matches,
        post(PathMatch::Exact(path("/shop.v1.Cart/Add")))
    );
    assert_eq!(rules[1].matches, post(PathMatch::Prefix(path("/shop.v1.Cart"))));
    let web: Vec<bool> = rules
        .iter()
        .map(|rule| matches!(&rule.action, Action::Forward(forward) if forward.grpc_web))
        .collect();
    assert_eq!(web, [true, false]);
    assert!(
        config
            .upstreams
            .iter()
            .all(|upstream| upstream.protocol == UpstreamProtocol::Http2)
    );
}

#[test]
fn invalid_and_duplicate_names_are_reported() {
    let with = |what: &str| {
        all_errors_of(&format!(
            "listen: :80\nroutes:\n  calls:\n    rules:\n      - {{match: {{{what}}}, respond: 200}}\n"
        ))
    };
    for name in [
        "shop..Cart",
        "shop.v1.Cart/",
        "/shop.v1.Cart",
        "shop.v1.Cart/Add/Two",
        "1.Cart",
    ] {
        let wrong = with(&format!("grpc: {name}"));
        let expected =
            format!("expected a service of gRPC such as shop.v1.Cart, or shop.v1.Cart/Add, found `{name}`");
        assert!(
            wrong.iter().any(|line| line.contains(&expected)),
            "{name}: {wrong:?}"
        );
    }
    for beside in ["path: /x", "method: POST"] {
        let wrong = with(&format!("grpc: shop.v1.Cart, {beside}"));
        let expected = "expected `grpc` without `path` and `method`, which it replaces, found both";
        assert!(
            wrong.iter().any(|line| line.contains(expected)),
            "{beside}: {wrong:?}"
        );
    }
}
