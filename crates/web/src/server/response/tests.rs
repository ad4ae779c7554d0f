//! The message of a panic, as the log has it.

use super::panic_text;

#[test]
fn a_panic_is_logged_with_its_message() {
    assert_eq!(panic_text(&"a literal"), "the handler panicked: a literal");
    assert_eq!(
        panic_text(&"formatted".to_owned()),
        "the handler panicked: formatted"
    );
    assert_eq!(panic_text(&7), "the handler panicked");
}

/// The sentences of tokio for its reactor, its timers and `Handle::current`.
#[test]
fn a_panic_without_tokio_names_the_remedy() {
    for message in [
        "there is no reactor running, must be called from the context of a Tokio 1.x runtime",
        "there is no timer running, must be called from the context of Tokio runtime: must be called from the context of a Tokio 1.x \
         runtime",
        "A Tokio 1.x context was found, but timers are disabled. Call `enable_time` on the runtime builder to enable timers.",
    ] {
        let text = panic_text(&message);
        assert!(text.contains(message), "{text}");
        assert!(text.contains("on a runtime of their own"), "{text}");
        assert!(text.contains("docs/how-to/app-tokio.md"), "{text}");
    }
}
