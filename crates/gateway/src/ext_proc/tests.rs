//! Modes that a service chooses.

use super::*;

const CONFIGURED: ProcessingMode = ProcessingMode {
    request_headers: true,
    response_headers: false,
    request_body: BodyMode::Buffered,
    response_body: BodyMode::None,
};

fn check(chosen: ModeOverride, expect: Option<(bool, BodyMode, BodyMode)>) {
    let found = overridden(CONFIGURED, CONFIGURED, chosen).ok();
    let found = found.map(|mode| (mode.response_headers, mode.request_body, mode.response_body));
    assert_eq!(found, expect, "{chosen:?}");
}

#[test]
fn a_service_chooses_a_mode() {
    let chosen = ModeOverride::default();
    check(chosen, Some((false, BodyMode::None, BodyMode::None)));
    for (mode, is_sent) in [(SendMode::Send, true), (SendMode::Skip, false)] {
        let response_headers = mode as i32;
        check(
            ModeOverride {
                response_headers,
                ..chosen
            },
            Some((is_sent, BodyMode::None, BodyMode::None)),
        );
    }
    check(
        ModeOverride {
            request_body: BodySendMode::Streamed as i32,
            response_body: BodySendMode::Buffered as i32,
            request_trailers: SendMode::Skip as i32,
            ..chosen
        },
        Some((false, BodyMode::Streamed, BodyMode::Buffered)),
    );
}

#[test]
fn a_mode_that_is_not_supported_is_invalid() {
    let chosen = ModeOverride::default();
    for body in [3, 4, 5, -1] {
        check(
            ModeOverride {
                request_body: body,
                ..chosen
            },
            None,
        );
    }
    check(
        ModeOverride {
            response_trailers: SendMode::Send as i32,
            ..chosen
        },
        None,
    );
    check(
        ModeOverride {
            response_headers: 3,
            ..chosen
        },
        None,
    );
}
