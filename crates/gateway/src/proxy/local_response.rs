//! Local responses: direct ones, error pages, and a line of text for each fault.

use ringmain_web::{Error, Reply};

use super::Failure;
use crate::compile::plan::{Plan, StatusHeaderEdits};
use crate::fault::Fault;
use crate::model::{DirectResponse, ErrorPage};
use crate::policy::Refusal;
use crate::table::Matched;

/// Sends a direct response.
pub(super) fn send_direct(
    reply: &mut Reply<'_>,
    plan: &Plan,
    response: &DirectResponse,
) -> Result<(), Failure> {
    write_response(reply, response.status, response)?;
    edit_headers(reply, &plan.response)?;
    Ok(())
}

fn write_response(reply: &mut Reply<'_>, status: u16, response: &DirectResponse) -> Result<(), Error> {
    reply.status(status);
    if let Some(kind) = &response.content_type {
        reply.header("Content-Type", kind.as_str())?;
    }
    reply.body().extend_from_slice(&response.body.0);
    Ok(())
}

/// Sends the first error page for a status. Returns whether there is one.
pub(super) fn send_error_page(
    reply: &mut Reply<'_>,
    pages: &[ErrorPage],
    status: u16,
) -> Result<bool, Error> {
    let page = pages.iter().find(|page| page.statuses.contains(status));
    if let Some(page) = page {
        write_response(reply, status, &page.response)?;
    }
    Ok(page.is_some())
}

/// Sends the response to a fault, as the rule defines it.
pub(super) fn send_fault(
    reply: &mut Reply<'_>,
    matched: &Matched<'_, Plan>,
    fault: Fault,
) -> Result<(), Error> {
    send_fault_as(reply, matched, fault, fault.status())
}

fn send_fault_as(
    reply: &mut Reply<'_>,
    matched: &Matched<'_, Plan>,
    fault: Fault,
    status: u16,
) -> Result<(), Error> {
    if !send_error_page(reply, &matched.rule().error_pages, status)? {
        send_plain_fault(reply, fault)?;
        reply.status(status);
        if status != 503 {
            reply.remove_header("Retry-After");
        }
    }
    if fault.is_overload() {
        reply.header("X-Overloaded", fault.label())?;
    }
    match matched.plan() {
        Ok(plan) => edit_headers(reply, &plan.response),
        Err(_) => Ok(()),
    }
}

/// Sends the response to a refusal by a policy.
pub(super) fn send_refusal(
    reply: &mut Reply<'_>,
    matched: &Matched<'_, Plan>,
    refusal: &Refusal,
) -> Result<(), Error> {
    match &refusal.response {
        Some(response) => {
            if !send_error_page(reply, &matched.rule().error_pages, response.status)? {
                reply.status(response.status);
                reply.body().extend_from_slice(&response.body);
            }
            if let Ok(plan) = matched.plan() {
                edit_headers(reply, &plan.response)?;
            }
        }
        None => {
            let status = refusal.status.unwrap_or(refusal.fault.status());
            send_fault_as(reply, matched, refusal.fault, status)?;
        }
    }
    for (name, _) in refusal.fields.iter() {
        reply.remove_header(name);
    }
    reply.add_headers(&refusal.fields);
    Ok(())
}

/// Sends the response to a fault without a rule.
pub(super) fn send_plain_fault(reply: &mut Reply<'_>, fault: Fault) -> Result<(), Error> {
    reply.status(fault.status());
    if fault.status() == 503 {
        reply.header("Retry-After", "1")?;
    }
    if fault == Fault::Misdirected {
        // Clients that pool connections by address would use this one for the next attempt, too (RFC 9110 §15.5.20).
        reply.close_connection();
    }
    let body = reply.body();
    body.extend_from_slice(fault.text().as_bytes());
    body.push(b'\n');
    reply
        .header("Content-Type", "text/plain; charset=utf-8")
        .map(|_| ())
}

/// Edits the head of a response that the gateway produces itself. Its status must be final.
pub(super) fn edit_headers(reply: &mut Reply<'_>, changes: &StatusHeaderEdits) -> Result<(), Error> {
    let changes = changes.edits_for(reply.current_status());
    for name in changes.removed_names() {
        reply.remove_header(name.as_str());
    }
    reply.add_headers(changes.appended_fields());
    Ok(())
}
