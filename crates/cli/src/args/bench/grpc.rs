//! The gRPC options of `ringmain bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::{self, Bytes};
use crate::args::values::{Time, time_in_range};

/// The options of gRPC calls; the URL names the method: http://HOST:PORT/package.Service/Method.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "gRPC (http:// and https:// targets)")]
pub(crate) struct Grpc {
    /// Call the gRPC method named by the URL's path, such as /grpc.health.v1.Health/Check, over HTTP/2
    ///
    /// A call succeeds with grpc-status 0 and one message. Headers (-H) set metadata
    #[arg(long)]
    pub(crate) grpc: bool,

    /// With --grpc: the method is server-streaming; any number of response messages is valid
    #[arg(long, requires = "grpc", hide_short_help = true)]
    pub(crate) server_streaming: bool,

    /// With --grpc: file with the encoded request message (protobuf) [default: an empty message]
    #[arg(long, value_name = "FILE", requires = "grpc")]
    pub(crate) data_file: Option<PathBuf>,

    /// With --grpc: request message in hexadecimal digits, such as 0a05776f726c64
    #[arg(long, value_name = "DIGITS", requires = "grpc", conflicts_with = "data_file", hide_short_help = true,
          value_parser = values::parse_hex)]
    pub(crate) data_hex: Option<Bytes>,

    /// With --grpc: request message in base64
    #[arg(long, value_name = "TEXT", requires = "grpc", conflicts_with_all = ["data_file", "data_hex"],
          hide_short_help = true, value_parser = values::parse_base64)]
    pub(crate) data_base64: Option<Bytes>,

    /// With --grpc: deadline of a call, sent as grpc-timeout [default: none]
    #[arg(long, value_name = "TIME", requires = "grpc", hide_short_help = true,
          value_parser = time_in_range(Duration::from_micros(1)..=Duration::from_hours(24)))]
    pub(crate) deadline: Option<Time>,
}

impl Grpc {
    /// Returns the request message of the command line; empty if there is none.
    pub(crate) fn message_bytes(&self) -> &[u8] {
        let written = self.data_hex.as_ref().or(self.data_base64.as_ref());
        written.map_or(&[], |Bytes(bytes)| bytes)
    }
}
