//! Names and ports of Kubernetes.

use std::sync::Arc;

use ringmain_gateway::model::PushServicePort;

use super::invalid;
use crate::config::fields::ParseScalar;

/// The name of a Service or a namespace of Kubernetes.
#[derive(Clone, Debug)]
pub(in crate::config) struct ServiceName(pub(in crate::config) Arc<str>);

impl ParseScalar for ServiceName {
    const NAME: &'static str = "Kubernetes name";
    const DESCRIPTION: &'static str =
        "The name of an object of Kubernetes: lowercase letters, digits and `-`, at most 63 characters.";
    const EXAMPLES: &'static [&'static str] = &["push-nodes"];
    const PATTERN: &'static str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

    fn parse(text: &str) -> Result<ServiceName, String> {
        if is_label(text, 63) {
            return Ok(ServiceName(text.into()));
        }
        invalid(
            "a name of Kubernetes: lowercase letters, digits and `-`, at most 63 characters",
            text,
        )
    }
}

/// A port of the endpoints of a Service of Kubernetes.
#[derive(Clone, Debug)]
pub(in crate::config) struct ServicePort(pub(in crate::config) PushServicePort);

impl ParseScalar for ServicePort {
    const NAME: &'static str = "Service port";
    const DESCRIPTION: &'static str =
        "The name of a port of a Service, or a number from 1 to 65535: the port of the Pods.";
    const EXAMPLES: &'static [&'static str] = &["cluster", "7946"];
    const PATTERN: &'static str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
    const ALLOWS_NUMBER: bool = true;

    fn parse(text: &str) -> Result<ServicePort, String> {
        match text.parse() {
            Ok(number @ 1..) => Ok(ServicePort(PushServicePort::Number(number))),
            Err(_) if is_label(text, 15) && text.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                Ok(ServicePort(PushServicePort::Name(text.into())))
            }
            _ => invalid(
                "the name of a port (at most 15 lowercase letters, digits and `-`), or a number from 1 to 65535",
                text,
            ),
        }
    }
}

/// Returns whether a text is a label of RFC 1123 of at most `length` characters.
fn is_label(text: &str, length: usize) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=length).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
