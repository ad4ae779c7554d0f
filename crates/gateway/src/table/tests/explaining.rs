//! What a request is told about.

use std::sync::Arc;

use super::{compile, config, facts, listener, route};
use crate::limits;

#[test]
fn what_came_nearest_is_told_first() {
    let mut elsewhere = route("elsewhere", &[], &["/"]);
    elsewhere.listeners.push("other".into());
    let mut config = config([
        elsewhere,
        route("host", &["b.example"], &["/"]),
        route(
            "shop",
            &["a.example"],
            &[
                "/",
                "/cart POST",
                "/cart h:x=1",
                "/cart q:k~[0-9]+",
                "=/help",
                "/cart",
            ],
        ),
    ]);
    config
        .listeners
        .push(Arc::new(listener("other", 80, &["c.example"])));
    let table = compile(config);
    let (id, ..) = table.addresses().iter().next().unwrap();
    let explained = table.explain(id, &facts("GET", "a.example/cart/1"));
    assert_eq!(explained.listener.as_deref(), Some("web"));
    assert_eq!(
        explained.others,
        [(
            "other".into(),
            "it is for `c.example`, not for `a.example`".to_owned()
        )]
    );
    let taken = explained.taken.unwrap();
    assert_eq!(
        (&*taken.route, taken.rule, &*taken.by),
        ("shop", 5, "prefix `/cart`")
    );
    let rejected: Vec<_> = explained
        .rejected
        .iter()
        .map(|rejected| format!("{} {}: {}", rejected.route, rejected.rule, rejected.why.text()))
        .collect();
    assert_eq!(
        rejected,
        [
            "shop 0: prefix `/` holds too, but comes later",
            "shop 3: query parameter `k` is not of the expression `[0-9]+`",
            "shop 2: header `x` is not `1`",
            "shop 1: it is for POST, not for GET",
            "shop 4: path `/help` is not `/cart/1`",
            "host 0: it is for `b.example`, not for `a.example`",
            "elsewhere 0: its listeners are `other`, not `web`",
        ]
    );
    assert_eq!(explained.more, 0);
}

#[test]
fn the_list_is_bounded() {
    let routes = (0..100).map(|number| route(&format!("r{number}"), &[], &["/x"]));
    let table = compile(config(routes));
    let (id, ..) = table.addresses().iter().next().unwrap();
    let explained = table.explain(id, &facts("GET", "/y"));
    assert_eq!(
        (explained.taken, explained.rejected.len(), explained.more),
        (None, limits::EXPLAINED, 80)
    );
}

#[test]
fn a_host_without_a_listener() {
    let mut config = config([]);
    config.listeners = vec![Arc::new(listener("web", 80, &["a.example"]))];
    let table = compile(config);
    let (id, ..) = table.addresses().iter().next().unwrap();
    let explained = table.explain(id, &facts("GET", "b.example/"));
    assert_eq!(explained.listener, None);
    assert_eq!(
        explained.others[0].1,
        "it is for `a.example`, not for `b.example`"
    );
}
