//! A change of one header by an external service: parsed and validated before any change is applied. Pure.

use ringmain_wire::h1::{FieldBlock, Known};

use super::envoy_messages::{AppendAction, HeaderOption};
use crate::proxy::{FieldTreatment, ProxyField, treatment};

/// A change of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderChange {
    /// In lower case.
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
    pub(crate) action: HeaderAction,
}

/// The effect on values that are present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderAction {
    /// The value is added to them.
    Append,
    /// The value is added if there are none.
    AddIfAbsent,
    /// The value replaces them; it is added if there are none.
    Overwrite,
    /// The value replaces them if there are any.
    OverwriteIfExists,
}

impl HeaderAction {
    /// Returns the action of an option; that of one that names none is `default`. `APPEND_IF_EXISTS_OR_ADD` without `append` cannot be
    /// distinguished from it. `None`: there is no such action.
    fn of(option: &HeaderOption, default: HeaderAction) -> Option<HeaderAction> {
        if let Some(append) = option.append {
            return Some(if append.value {
                HeaderAction::Append
            } else {
                HeaderAction::Overwrite
            });
        }
        Some(match AppendAction::try_from(option.append_action).ok()? {
            AppendAction::AppendOrAdd => default,
            AppendAction::OverwriteOrAdd => HeaderAction::Overwrite,
            AppendAction::AddIfAbsent => HeaderAction::AddIfAbsent,
            AppendAction::OverwriteIfExists => HeaderAction::OverwriteIfExists,
        })
    }
}

impl HeaderChange {
    /// Parses a change of a response header. By default the value is added to those of the upstream, as Envoy does.
    ///
    /// # Errors
    /// The header or its value cannot be sent, or frames the message.
    pub(super) fn for_response(option: HeaderOption) -> Result<HeaderChange, String> {
        HeaderChange::parse(option, HeaderAction::Append)
    }

    /// Parses a change of a request header. By default the value replaces those of the client.
    ///
    /// # Errors
    /// As [`HeaderChange::for_response`], or the gateway writes the header itself.
    pub(super) fn for_request(option: HeaderOption) -> Result<HeaderChange, String> {
        let change = HeaderChange::parse(option, HeaderAction::Overwrite)?;
        if is_own_request_header(&change.name) {
            return Err(format!("the header `{}` is written by the gateway", change.name));
        }
        Ok(change)
    }

    /// Parses a change; one that names no action has the `default`.
    ///
    /// # Errors
    /// The header or its value cannot be sent, or frames the message.
    pub(crate) fn parse(option: HeaderOption, default: HeaderAction) -> Result<HeaderChange, String> {
        let action = HeaderAction::of(&option, default).ok_or("an unknown append action")?;
        let header = option.header.ok_or("a change without a header")?;
        let mut name = header.key;
        name.make_ascii_lowercase();
        let value = if header.value.is_empty() {
            header.raw_value
        } else {
            header.value.into_bytes()
        };
        let mut probe = FieldBlock::new();
        let valid = probe.push(&name, &value);
        valid.map_err(|misuse| format!("the header `{}`: {misuse}", name.escape_debug()))?;
        Ok(HeaderChange { name, value, action })
    }

    /// Returns [`HeaderAction::Append`] or [`HeaderAction::Overwrite`] by whether the header exists; `None`: nothing is changed.
    pub(crate) fn action_for(&self, exists: bool) -> Option<HeaderAction> {
        match self.action {
            HeaderAction::AddIfAbsent if exists => None,
            HeaderAction::OverwriteIfExists if !exists => None,
            HeaderAction::Overwrite | HeaderAction::OverwriteIfExists => Some(HeaderAction::Overwrite),
            HeaderAction::Append | HeaderAction::AddIfAbsent => Some(HeaderAction::Append),
        }
    }

    /// Applies the change to fields.
    pub(crate) fn apply(&self, fields: &mut FieldBlock) {
        let exists = fields
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(&self.name));
        match self.action_for(exists) {
            None => return,
            Some(HeaderAction::Overwrite) => fields.remove(&self.name),
            Some(_) => {}
        }
        // The change was validated when it was parsed.
        let _ = fields.push(&self.name, &self.value);
    }
}

/// Returns whether a request header frames the message, belongs to the connection, or names the client: the gateway writes it.
pub(crate) fn is_own_request_header(name: &str) -> bool {
    match treatment(Known::of(name.as_bytes()), name.as_bytes()) {
        FieldTreatment::EndToEnd | FieldTreatment::Proxy(ProxyField::Other) => false,
        FieldTreatment::HopByHop | FieldTreatment::Proxy(_) => true,
    }
}
