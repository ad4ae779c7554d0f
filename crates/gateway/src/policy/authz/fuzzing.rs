//! The whole way of a response, for a fuzz target.

use prost::Message;
use ringmain_wire::h1::FieldBlock;

use super::decision::{Decision, decide};
use super::messages::CheckResponse;
use super::query::change_query;
use crate::fuzzing::AuthzOutcome;

/// Reads a response, and changes `query` as it demands.
pub(crate) fn authz_outcome(message: &[u8], query: &str) -> AuthzOutcome {
    let Ok(response) = CheckResponse::decode(message) else {
        return AuthzOutcome::Failed;
    };
    match decide(response) {
        Decision::Failed(..) => AuthzOutcome::Failed,
        Decision::Denied(denial, metadata) => {
            let _ = metadata.log_text();
            AuthzOutcome::Denied(denial.status, denial.fields)
        }
        Decision::Allowed(changes) => {
            let mut fields = FieldBlock::new();
            for change in changes.headers.iter().chain(&changes.response) {
                change.apply(&mut fields);
            }
            let query = change_query(query, &changes.query_set, &changes.query_removed);
            AuthzOutcome::Allowed(fields, query)
        }
    }
}
