//! The refusal of a request by a policy.

use ringmain_wire::h1::FieldBlock;

use super::{Cleared, PolicyRecord};
use crate::fault::Fault;

/// The reason for a refusal, and its response.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) fault: Fault,
    /// Replaces the fault's status.
    pub(crate) status: Option<u16>,
    /// Headers of the response: a challenge (RFC 9110 §11.6.1), or the time to retry after.
    pub(crate) fields: FieldBlock,
    /// The response of an external service, in place of the fault's status and text.
    pub(crate) response: Option<ExternalResponse>,
    /// The access log fields of the policies before the one that refused.
    pub(crate) record: PolicyRecord,
}

/// The response of an external service.
#[derive(Debug)]
pub(crate) struct ExternalResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl From<Fault> for Box<Refusal> {
    fn from(fault: Fault) -> Box<Refusal> {
        Box::new(Refusal {
            fault,
            status: None,
            fields: FieldBlock::new(),
            response: None,
            record: PolicyRecord::default(),
        })
    }
}

impl Refusal {
    /// Adds the access log fields of the policies that the request had passed.
    pub(super) fn with_record_of(mut self: Box<Refusal>, cleared: &Cleared) -> Box<Refusal> {
        if let Some(record) = cleared.record() {
            self.record.clone_from(record);
        }
        self
    }

    /// Creates a refusal with a challenge (RFC 9110 §11.6.1).
    pub(super) fn with_challenge(fault: Fault, challenge: &str) -> Box<Refusal> {
        let mut refusal: Box<Refusal> = fault.into();
        if let Err(misuse) = refusal.fields.push("WWW-Authenticate", challenge.as_bytes()) {
            log::error!("a challenge cannot be sent: {misuse}");
        }
        refusal
    }

    /// Creates a refusal with the response of an external service.
    pub(super) fn with_response(
        fault: Fault,
        response: ExternalResponse,
        fields: FieldBlock,
    ) -> Box<Refusal> {
        let mut refusal: Box<Refusal> = fault.into();
        refusal.fields = fields;
        refusal.response = Some(response);
        refusal
    }
}
