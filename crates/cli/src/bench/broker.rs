//! The broker that `ringmain bench push --publish-to` writes to, in builds that have its client.

use ringmain_load::push::BrokerPlan;

use crate::args::bench::push::Publications;
#[cfg(feature = "brokers")]
use crate::args::bench::push::RecordFormat;
use crate::error::CliError;

/// Returns the broker of the command line, if there is one.
#[cfg(feature = "brokers")]
pub(super) fn broker_plan(args: &Publications) -> Result<Option<BrokerPlan>, CliError> {
    let Some(url) = &args.publish_to else {
        return Ok(None);
    };
    let broker = ringmain_producers::broker(url, args.plain_consumer)
        .map_err(|error| CliError::Usage(format!("--publish-to: {error}")))?;
    Ok(Some(BrokerPlan {
        broker,
        commands: args.record_format == RecordFormat::Commands,
    }))
}

/// Returns the broker of the command line: an error in a build without clients of brokers.
#[cfg(not(feature = "brokers"))]
pub(super) fn broker_plan(args: &Publications) -> Result<Option<BrokerPlan>, CliError> {
    match &args.publish_to {
        None => Ok(None),
        Some(_) => Err(CliError::Usage(
            "--publish-to: this build has no clients of brokers; releases have them, and so does a build with \
             `cargo build --release -p ringmain-cli --features brokers`"
                .into(),
        )),
    }
}
