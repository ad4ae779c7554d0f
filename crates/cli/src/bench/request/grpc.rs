//! gRPC calls: from options to the request of a call.

use std::fs;

use ringmain_load::limits;
use ringmain_load::plan::{self, Protocol};
use ringmain_load::target::{Scheme, Target};
use ringmain_load::traffic::{Body, Request as Draft, Traffic};
use ringmain_wire::grpc::{PREFIX_BYTES, Slot, write_timeout};

use super::{Workload, build_request};
use crate::args::bench::{Grpc, Load, Request};
use crate::error::CliError;

/// Returns the workload of gRPC calls.
pub(super) fn call_workload(
    target: &Target,
    has_scenario: bool,
    load: &Load,
    args: &Request,
) -> Result<Workload, CliError> {
    check_options(target, has_scenario, load, args)?;
    let mut request = build_request(target, args)?;
    "POST".clone_into(&mut request.method);
    request.body = Body::Bytes(frame_message(read_message(&args.grpc)?)?.into());
    add_metadata(&mut request, &args.grpc);
    let kind = if args.grpc.server_streaming {
        plan::Grpc::ServerStreaming
    } else {
        plan::Grpc::Unary
    };
    Ok(Workload {
        place: target.place.clone(),
        protocol: Protocol::Grpc(kind),
        tls: None,
        traffic: Traffic::single(request).map_err(|error| CliError::Usage(error.to_string()))?,
    })
}

/// Fails on options that conflict with gRPC.
fn check_options(target: &Target, has_scenario: bool, load: &Load, args: &Request) -> Result<(), CliError> {
    if target.scheme != Scheme::Http {
        let line = "--grpc is for http:// and https:// targets: use one, with the method as its path";
        return Err(CliError::Usage(line.into()));
    }
    let given = [
        ("a scenario", has_scenario),
        ("--echo", load.echo.is_some()),
        ("--method", args.method.is_some()),
        ("--body", args.body.is_some()),
        ("--body-file", args.body_file.is_some()),
        ("--expect-status", args.expect_status.is_some()),
        ("--expect-body", args.expect_body.is_some()),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(CliError::Usage(format!(
            "{option} has no meaning with --grpc, where the URL names the method, --data-file has the message, and a call \
             succeeds with grpc-status 0: drop it"
        )));
    }
    let mut parts = target.path.strip_prefix('/').unwrap_or_default().split('/');
    let is_method = match (parts.next(), parts.next(), parts.next()) {
        (Some(service), Some(method), None) => !service.is_empty() && !method.is_empty(),
        _ => false,
    };
    if is_method {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "--grpc: expected the path of a method, such as /grpc.health.v1.Health/Check; found {}",
        target.path
    )))
}

fn read_message(args: &Grpc) -> Result<Vec<u8>, CliError> {
    let Some(path) = &args.data_file else {
        return Ok(args.message_bytes().to_vec());
    };
    fs::read(path)
        .map_err(|error| CliError::Usage(format!("--data-file: cannot read {}: {error}", path.display())))
}

/// Adds the length prefix to a message.
fn frame_message(message: Vec<u8>) -> Result<Vec<u8>, CliError> {
    let most = limits::REQUEST_BODY_BYTES - PREFIX_BYTES;
    if message.len() > most {
        return Err(CliError::Usage(format!(
            "--data-file: expected a message of at most {most} bytes, found {}",
            message.len()
        )));
    }
    let mut framed = Vec::with_capacity(PREFIX_BYTES + message.len());
    let slot = Slot::open(&mut framed);
    framed.extend_from_slice(&message);
    let closed = slot.close(&mut framed, false);
    closed.map_err(CliError::other)?;
    Ok(framed)
}

/// Adds the metadata of a call, unless the options set it.
fn add_metadata(request: &mut Draft, args: &Grpc) {
    let mut ours = vec![
        ("content-type", "application/grpc".to_owned()),
        ("te", "trailers".to_owned()),
    ];
    if let Some(deadline) = args.deadline {
        let mut text = String::new();
        write_timeout(&mut text, deadline.0);
        ours.push(("grpc-timeout", text));
    }
    for (name, value) in ours {
        let is_set = request
            .headers
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name));
        if !is_set {
            request.headers.push((name.to_owned(), value));
        }
    }
}
