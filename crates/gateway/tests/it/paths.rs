//! Escaped slashes do not lead past rules that guard a part of the paths, and paths are sent as the listener says.

use std::sync::Arc;

use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, Action, DirectResponse, EscapedSlashes, Forward, Match, Path, PathMatch, PathRewrite, Policy, Rule,
    StaticBody,
};

use crate::origin::{Edge, Origin, edge, rules, upstream};
use crate::policies::addresses;

on_every_backend! {
    escaped_slashes_are_rejected_where_a_rule_guards_a_prefix,
    escaped_slashes_are_kept_where_none_does,
    escaped_slashes_are_decoded_if_that_is_wanted,
    slashes_are_merged_if_that_is_wanted,
}

/// Spellings of `/admin/x` that do not match the prefix `/admin` by themselves.
const SPELLINGS: [&str; 8] = [
    "/admin%2fx",
    "/admin%2Fx",
    "/admin%5cx",
    "/admin%5Cx",
    "/admin\\x",
    "/%2fadmin/x",
    "/public%5c..%5cadmin/x",
    "//admin%2f%2fx",
];

fn forward(rewrite: Option<PathRewrite>) -> Action {
    let mut forward = Forward::to("origin");
    forward.rewrite.path = rewrite;
    Action::Forward(Box::new(forward))
}

fn below(path: &str, action: Action) -> Rule {
    Rule {
        matches: vec![Match {
            path: PathMatch::Prefix(Path::parse(path).expect("a path")),
            ..Match::default()
        }],
        ..Rule::new(action)
    }
}

/// A rule that lets no client in.
fn closed(path: &str, policy: Policy) -> Rule {
    Rule {
        policies: vec![policy],
        ..below(path, forward(None))
    }
}

fn refusing(path: &str) -> Rule {
    below(
        path,
        Action::Respond(DirectResponse {
            status: 403,
            content_type: None,
            body: StaticBody::default(),
        }),
    )
}

fn serve(engine: Config, origin: &Origin, guard: Rule, paths: model::Paths) -> Edge {
    let all = vec![guard, below("/", forward(None))];
    let mut config = rules(all, vec![upstream("origin", &[origin.addr])]);
    Arc::make_mut(&mut config.listeners[0]).paths = paths;
    edge(engine, config)
}

fn with(escaped_slashes: Option<EscapedSlashes>) -> model::Paths {
    model::Paths {
        escaped_slashes,
        ..model::Paths::default()
    }
}

fn escaped_slashes_are_rejected_where_a_rule_guards_a_prefix(engine: Config) {
    let guards = [
        closed("/admin", addresses(&["192.0.2.0/24"], &[])),
        closed("/admin/deep", addresses(&["192.0.2.0/24"], &[])),
        refusing("/admin"),
    ];
    for guard in guards {
        let origin = Origin::new(|_| panic!("nothing reaches the origin"));
        let edge = serve(engine.clone(), &origin, guard, with(None));
        for path in SPELLINGS {
            let refused = edge.server.get(path);
            refused.expect(400, "path contains an escaped slash or a backslash\n");
        }
        edge.server.shut_down();
    }
}

fn escaped_slashes_are_kept_where_none_does(engine: Config) {
    let guards = [
        below("/admin", forward(None)),
        // A rule for all paths has no wider one.
        closed("/", addresses(&["127.0.0.0/8"], &[])),
    ];
    for (guard, kept) in guards.into_iter().zip([None, None]).chain([(
        closed("/admin", addresses(&["192.0.2.0/24"], &[])),
        Some(EscapedSlashes::Keep),
    )]) {
        let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let edge = serve(engine.clone(), &origin, guard, with(kept));
        for path in &SPELLINGS[..5] {
            assert_eq!(edge.server.get(path).status, 200, "{path}");
            assert_eq!(origin.seen().line(), format!("GET {path} HTTP/1.1"));
        }
        edge.server.shut_down();
    }
}

fn escaped_slashes_are_decoded_if_that_is_wanted(engine: Config) {
    let decode = with(Some(EscapedSlashes::Decode));
    let origin = Origin::new(|_| panic!("nothing reaches the origin"));
    let guard = closed("/admin", addresses(&["192.0.2.0/24"], &[]));
    let edge = serve(engine.clone(), &origin, guard, decode);
    for path in SPELLINGS {
        assert_eq!(edge.server.get(path).status, 403, "{path}");
    }
    edge.server.shut_down();
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let instead = PathRewrite::Prefix(Path::parse("/inner").expect("a path"));
    let edge = serve(engine, &origin, below("/admin", forward(Some(instead))), decode);
    for path in SPELLINGS {
        assert_eq!(edge.server.get(path).status, 200, "{path}");
        assert_eq!(origin.seen().line(), "GET /inner/x HTTP/1.1", "{path}");
    }
    edge.server.get("/open%2fx%20y?a%2fb");
    assert_eq!(origin.seen().line(), "GET /open/x%20y?a%2fb HTTP/1.1");
    edge.server.shut_down();
}

fn slashes_are_merged_if_that_is_wanted(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let paths = model::Paths {
        merge_slashes: true,
        ..model::Paths::default()
    };
    let edge = serve(engine, &origin, below("/admin", forward(None)), paths);
    for (path, expected) in [("//a///b", "/a/b"), ("/a/", "/a/"), ("//admin//", "/admin/")] {
        edge.server.get(path);
        assert_eq!(origin.seen().line(), format!("GET {expected} HTTP/1.1"));
    }
    edge.server.shut_down();
}
