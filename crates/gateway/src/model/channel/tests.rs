//! Tests of channel names, and of the bounds of those that a source can feed.

use super::{CHANNEL_BOUNDS, ChannelBound, ChannelTemplate, Subject, SubjectPattern};

fn name(text: &str) -> ChannelBound {
    ChannelBound::Name(text.to_owned())
}

fn prefix(text: &str) -> ChannelBound {
    ChannelBound::Prefix(text.to_owned())
}

#[track_caller]
fn check(template: &str, subjects: &[SubjectPattern], expected: &[ChannelBound]) {
    let parsed = ChannelTemplate::parse(template).expect("a template");
    assert_eq!(parsed.bounds(subjects), expected, "{template} of {subjects:?}");
}

#[test]
fn channels_are_derived_from_subjects() {
    for (channel, subject, expected) in [
        ("{subject}", "a.b", Some("a.b")),
        ("{1}", "a.b", Some("a")),
        ("x:{2}", "a.b", Some("x:b")),
        ("{2}:{1}", "a.b.c", Some("b:a")),
        ("{3}", "a.b", None),
        ("{1..}", "a.b.c", Some("a.b.c")),
        ("{2..}", "a.b.c", Some("b.c")),
        ("{3..}", "a.b.c", Some("c")),
        ("{4..}", "a.b.c", None),
        ("news", "a", Some("news")),
        ("{key}", "a", None),
    ] {
        let template = ChannelTemplate::parse(channel).expect("a template");
        let found = template.channel_of(&Subject(subject));
        assert_eq!(found.as_deref(), expected, "{channel} of {subject}");
    }
}

#[test]
fn namespace_is_known_unless_records_determine_it() {
    for (channel, expected) in [
        ("prices:{key}", Some("prices")),
        ("$prices:{key}", Some("prices")),
        ("prices:all", Some("prices")),
        ("prices{key}:x", None),
        ("{key}:x", None),
        (":{key}", None),
        ("news", None),
    ] {
        let template = ChannelTemplate::parse(channel).expect("a template");
        assert_eq!(template.namespace(), expected, "{channel}");
    }
}

#[test]
fn names_are_known_up_to_the_unknown_part_of_subjects() {
    let subject = SubjectPattern::name;
    check(
        "{subject}",
        &[subject("a.b"), subject("c")],
        &[name("a.b"), name("c")],
    );
    check("x:{2}:{1}", &[subject("a.b")], &[name("x:b:a")]);
    check("x:{topic}/{key}", &[subject("a")], &[prefix("x:a/")]);
    check("{key}", &[subject("a")], &[prefix("")]);
    check("news", &[subject("a"), SubjectPattern::any()], &[name("news")]);
    // No record of `a` has a channel.
    check("{2..}", &[subject("a"), subject("a.b")], &[name("b")]);
    check("{key}:{2}", &[subject("a")], &[]);
}

#[test]
fn nats_filters_are_known_up_to_the_first_wildcard() {
    let nats = |filters: &[&str]| -> Vec<SubjectPattern> {
        filters
            .iter()
            .map(|filter| SubjectPattern::nats(filter))
            .collect()
    };
    check("prices:{2..}", &nats(&["a.>"]), &[prefix("prices:")]);
    check(
        "{subject}",
        &nats(&["prices.>", "a.b"]),
        &[prefix("prices."), name("a.b")],
    );
    check("{subject}", &nats(&["a.b", "*.c", ">"]), &[prefix("")]);
    check("{1..}:x", &nats(&["prices.*.eu"]), &[prefix("prices.")]);
    check("{3}:{2}", &nats(&["prices.*.eu"]), &[prefix("eu:")]);
    check("{2}:{3}", &nats(&["a.prices.>"]), &[prefix("prices:")]);
    check("{1}:x", &nats(&["a.>"]), &[name("a:x")]);
    check("{4..}", &nats(&["a.>"]), &[prefix("")]);
}

#[test]
fn redis_patterns_are_known_up_to_the_first_special_character() {
    let glob = SubjectPattern::glob;
    check("{channel}", &[glob("ticks.*")], &[prefix("ticks.")]);
    check("{channel}", &[glob("ticks.a?")], &[prefix("ticks.a")]);
    check("k:{channel}", &[glob("plain")], &[name("k:plain")]);
    check("{2}", &[glob("a.b[cd].e")], &[prefix("b")]);
    check("{3}", &[glob("a.*.e")], &[prefix("")]);
    check("{channel}", &[glob("a\\*b")], &[prefix("a")]);
}

#[test]
fn bounds_do_not_repeat_and_are_limited() {
    let nats = SubjectPattern::nats;
    check(
        "{subject}",
        &[nats("a.b"), nats("a.>"), nats("a.>")],
        &[prefix("a.")],
    );
    let names = |count: usize| -> Vec<SubjectPattern> {
        let names = (0..count).map(|number| SubjectPattern::name(&format!("é{number}")));
        names.collect()
    };
    let template = ChannelTemplate::subject();
    assert_eq!(template.bounds(&names(CHANNEL_BOUNDS)).len(), CHANNEL_BOUNDS);
    assert_eq!(template.bounds(&names(CHANNEL_BOUNDS + 1)), [prefix("é")]);
}

#[test]
fn names_match_nats_filters() {
    for (filter, name, expected) in [
        ("a.b", "a.b", true),
        ("a.b", "a.b.c", false),
        ("a.b", "a", false),
        ("a.*", "a.b", true),
        ("a.*", "a.b.c", false),
        ("*.b", "a.b", true),
        ("*.b", "a.c", false),
        ("a.>", "a.b.c", true),
        ("a.>", "a", false),
        (">", "a", true),
    ] {
        assert_eq!(
            SubjectPattern::nats(filter).matches(name),
            expected,
            "{filter} {name}"
        );
    }
    assert!(SubjectPattern::any().matches("a.b"));
    assert!(SubjectPattern::glob("a.b*").matches("a.bc.d"));
    assert!(!SubjectPattern::glob("a.b*").matches("a.c"));
}
