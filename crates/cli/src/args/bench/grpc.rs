//! What `ringmain bench` may say of gRPC on its command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::{self, Bytes};
use crate::args::values::{Time, time_in_range};

/// Calls of a method that the URL names: http://HOST:PORT/package.Service/Method.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "gRPC (http:// and https:// targets)")]
pub(crate) struct Grpc {
    /// Call the method of gRPC that the URL's path names, such as /grpc.health.v1.Health/Check, over HTTP/2
    ///
    /// An answer is right with grpc-status 0 and one message. Metadata are headers (-H)
    #[arg(long)]
    pub(crate) grpc: bool,

    /// With --grpc: answers are streams of messages, as many as the server sends
    #[arg(long, requires = "grpc", hide_short_help = true)]
    pub(crate) server_streaming: bool,

    /// With --grpc: the message of each call from a file, as it is on the wire (protobuf) [default: an empty one]
    #[arg(long, value_name = "FILE", requires = "grpc")]
    pub(crate) data_file: Option<PathBuf>,

    /// With --grpc: the same in hexadecimal digits, such as 0a05776f726c64
    #[arg(long, value_name = "DIGITS", requires = "grpc", conflicts_with = "data_file", hide_short_help = true,
          value_parser = values::parse_hex)]
    pub(crate) data_hex: Option<Bytes>,

    /// With --grpc: the same in base64
    #[arg(long, value_name = "TEXT", requires = "grpc", conflicts_with_all = ["data_file", "data_hex"],
          hide_short_help = true, value_parser = values::parse_base64)]
    pub(crate) data_base64: Option<Bytes>,

    /// With --grpc: the time that the server has for a call (grpc-timeout) [default: not said]
    #[arg(long, value_name = "TIME", requires = "grpc", hide_short_help = true,
          value_parser = time_in_range(Duration::from_micros(1)..=Duration::from_hours(24)))]
    pub(crate) deadline: Option<Time>,
}

impl Grpc {
    /// The bytes of a call's message, but for those of a file.
    pub(crate) fn message_bytes(&self) -> &[u8] {
        let written = self.data_hex.as_ref().or(self.data_base64.as_ref());
        written.map_or(&[], |Bytes(bytes)| bytes)
    }
}
