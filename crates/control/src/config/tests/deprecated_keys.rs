//! Keys with a usual name beside their old one.

use super::{all_errors_of, loaded};

#[test]
fn deprecated_keys_are_accepted_with_a_warning() {
    let text = |[pause, first, last, time, percent, retention, interval]: [&str; 7]| {
        format!(
            "listen: :80\nupstreams:\n  shop:\n    endpoints: 127.0.0.1:1\n    health:\n      active: {{path: /, every: 1s}}\n      \
             outliers: {{{time}: 60s, {percent}: 20}}\nroutes:\n  all:\n    rules:\n      - \
             {{to: shop, retry: {{{pause}: 1ms, {first}: 5ms, {last}: 1s}}}}\n      - {{match: /live, push: {{}}}}\n\
             push: {{anonymous: true, namespaces: {{prices: {{{retention}: {{publications: 7}}, {interval}: 3s}}}}}}\n"
        )
    };
    let current = loaded(&text([
        "backoff_min",
        "backoff",
        "backoff_max",
        "max_ejected_time",
        "max_ejected_percent",
        "retention",
        "update_interval",
    ]));
    let deprecated = loaded(&text([
        "backoff_least",
        "backoff",
        "backoff_most",
        "ejected_most",
        "most_percent",
        "keep",
        "every",
    ]));
    assert_eq!((&current.errors[..], &deprecated.errors[..]), (&[][..], &[][..]));
    assert_eq!(current.config, deprecated.config);
    assert_eq!(current.warnings, []);
    let warnings: Vec<_> = deprecated.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "c.yaml:7:18: warning: the key `ejected_most` is deprecated, use `max_ejected_time`",
            "c.yaml:7:37: warning: the key `most_percent` is deprecated, use `max_ejected_percent`",
            "c.yaml:11:28: warning: the key `backoff_least` is deprecated, use `backoff_min`",
            "c.yaml:11:62: warning: the key `backoff_most` is deprecated, use `backoff_max`",
            "c.yaml:13:47: warning: the key `keep` is deprecated, use `retention`",
            "c.yaml:13:72: warning: the key `every` is deprecated, use `update_interval`",
        ]
    );
    let both =
        all_errors_of("listen: :80\npush: {anonymous: true, namespaces: {n: {keep: {}, retention: {}}}}\n");
    assert_eq!(
        both,
        ["c.yaml:2:42: expected one of `keep` (deprecated) and `retention`, found both"]
    );
}
