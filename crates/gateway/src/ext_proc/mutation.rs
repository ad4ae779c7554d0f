//! Changes that a processor demands, read from its response and validated before any is applied. Pure.

use ringmain_wire::h1::{FieldBlock, Known};

use super::messages::{
    BodyChange, BodyMutation, CommonResponse, HeaderMutation, ImmediateResponse, ResponseStatus,
};
use crate::filter::{FilterError, FilterResponse, RequestHead, ResponseHead};
use crate::limits;
use crate::policy::header_change::{HeaderAction, HeaderChange, is_own_request_header};
use crate::proxy::{FieldTreatment, treatment};

/// The side of an exchange that a response of the processor changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Response,
}

/// The changes of one part.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) head: HeadChanges,
    pub(super) body: Option<Vec<u8>>,
    /// The body replaces the whole one, and the processor receives nothing more of this message.
    pub(super) replaces: bool,
}

/// The changes of a head.
#[derive(Debug, Default, PartialEq)]
pub(super) struct HeadChanges {
    removed: Vec<String>,
    set: Vec<HeaderChange>,
    /// `:path` of a request.
    target: Option<String>,
    /// `:status` of a response.
    status: Option<u16>,
}

/// Reads the changes of one part.
///
/// # Errors
/// A change is invalid: none is applied.
pub(super) fn changes(response: CommonResponse, side: Side) -> Result<Changes, String> {
    let replaces = match ResponseStatus::try_from(response.status) {
        Ok(ResponseStatus::Continue) => false,
        Ok(ResponseStatus::ContinueAndReplace) => true,
        Err(_) => return Err(format!("an unknown status {}", response.status)),
    };
    Ok(Changes {
        head: head_changes(response.header_mutation.unwrap_or_default(), side)?,
        body: body_change(response.body_mutation)?,
        replaces,
    })
}

fn body_change(mutation: Option<BodyMutation>) -> Result<Option<Vec<u8>>, String> {
    match mutation.and_then(|mutation| mutation.change) {
        None | Some(BodyChange::Clear(false)) => Ok(None),
        Some(BodyChange::Clear(true)) => Ok(Some(Vec::new())),
        Some(BodyChange::Body(body)) => Ok(Some(body)),
        Some(BodyChange::Streamed(_)) => {
            Err("a `streamed_response`, of a mode that is not supported".to_owned())
        }
    }
}

/// Reads the changes of a head. Those of fields that the gateway writes itself are left out.
///
/// # Errors
/// A change is invalid, or there are too many.
fn head_changes(mutation: HeaderMutation, side: Side) -> Result<HeadChanges, String> {
    let count = mutation.set_headers.len() + mutation.remove_headers.len();
    if count > limits::PROCESSOR_CHANGES {
        return Err(format!(
            "expected at most {} changes of headers, found {count}",
            limits::PROCESSOR_CHANGES
        ));
    }
    let mut changes = HeadChanges::default();
    for name in mutation.remove_headers {
        let name = name.to_ascii_lowercase();
        if is_own(&name, side) {
            log::debug!("a processor does not remove `{}`", name.escape_debug());
            continue;
        }
        let pushed = FieldBlock::new().push(&name, b"");
        pushed.map_err(|misuse| format!("the header `{}`: {misuse}", name.escape_debug()))?;
        changes.removed.push(name);
    }
    for option in mutation.set_headers {
        let header = option.header.as_ref().ok_or("a change without a header")?;
        let name = header.key.to_ascii_lowercase();
        match (&*name, side) {
            (":path", Side::Request) => changes.target = Some(target(header.bytes())?),
            (":status", Side::Response) => changes.status = Some(status(header.bytes())?),
            _ if is_own(&name, side) => {
                log::debug!("a processor does not change `{}`", name.escape_debug());
            }
            _ => changes
                .set
                .push(HeaderChange::parse(option, HeaderAction::Overwrite)?),
        }
    }
    Ok(changes)
}

/// Returns whether the gateway writes a field itself: it frames the message, belongs to the connection, names the client, or is a part of the
/// request that selected the rule.
fn is_own(name: &str, side: Side) -> bool {
    name.starts_with(':')
        || match side {
            Side::Request => is_own_request_header(name),
            Side::Response => {
                let treatment = treatment(Known::of(name.as_bytes()), name.as_bytes());
                treatment == FieldTreatment::HopByHop
            }
        }
}

/// Reads a path and query.
fn target(value: &[u8]) -> Result<String, String> {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
    let text = str::from_utf8(value).ok().filter(|text| text.starts_with('/'));
    let text = text.filter(|_| value.iter().all(is_plain));
    let found = || format!("expected a path, found `{}`", value.escape_ascii());
    text.map(str::to_owned).ok_or_else(found)
}

fn status(value: &[u8]) -> Result<u16, String> {
    let status = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    let status = status.filter(|status| (200..=599).contains(status));
    status.ok_or_else(|| {
        format!(
            "expected a status from 200 to 599, found `{}`",
            value.escape_ascii()
        )
    })
}

impl HeadChanges {
    /// Applies the changes to a request.
    ///
    /// # Errors
    /// The path, or a header, is one that cannot be sent.
    pub(super) fn apply_to_request(&self, head: &mut RequestHead<'_>) -> Result<(), FilterError> {
        self.removed.iter().for_each(|name| head.remove(name));
        for change in &self.set {
            match change.action_for(head.get(&change.name).is_some()) {
                Some(HeaderAction::Append) => head.add(&change.name, &change.value)?,
                Some(_) => head.set(&change.name, &change.value)?,
                None => {}
            }
        }
        match &self.target {
            Some(target) => head.set_target(target),
            None => Ok(()),
        }
    }

    /// Applies the changes to a response.
    ///
    /// # Errors
    /// The status, or a header, is one that cannot be sent.
    pub(super) fn apply_to_response(&self, head: &mut ResponseHead<'_>) -> Result<(), FilterError> {
        self.removed.iter().for_each(|name| head.remove(name));
        for change in &self.set {
            match change.action_for(head.get(&change.name).is_some()) {
                Some(HeaderAction::Append) => head.add(&change.name, &change.value)?,
                Some(_) => head.set(&change.name, &change.value)?,
                None => {}
            }
        }
        match self.status {
            Some(status) => head.set_status(status),
            None => Ok(()),
        }
    }
}

/// Reads a response in place of any other.
///
/// # Errors
/// Its status or a header is invalid.
pub(super) fn immediate_response(response: ImmediateResponse) -> Result<FilterResponse, String> {
    let code = response.status.map_or(0, |status| status.code);
    let code = u16::try_from(code).ok().filter(|code| (200..=599).contains(code));
    let code = code.ok_or("an immediate response without a status from 200 to 599")?;
    let changes = head_changes(response.headers.unwrap_or_default(), Side::Response)?;
    let mut fields = FieldBlock::new();
    if !response.body.is_empty() {
        // Name and value are constants, and valid.
        let _ = fields.push("content-type", b"text/plain");
    }
    changes.removed.iter().for_each(|name| fields.remove(name));
    changes.set.iter().for_each(|change| change.apply(&mut fields));
    let mut answer = FilterResponse::new(changes.status.unwrap_or(code)).body(response.body);
    answer.fields = fields;
    Ok(answer)
}

#[cfg(test)]
mod tests;
