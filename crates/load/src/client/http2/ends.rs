//! What is counted of a stream that a server gives up, and of a connection that it sends away: by the code that it says.

use ringmain_wire::h2::ErrorCode;

macro_rules! ends {
    ($(#[$doc:meta])* $name:ident $frame:literal: $($code:ident)*) => {
        $(#[$doc])*
        pub(super) fn $name(code: ErrorCode) -> &'static str {
            match code {
                $(ErrorCode::$code => concat!($frame, ": ", stringify!($code)),)*
                _ => concat!($frame, ": another code"),
            }
        }
    };
}

ends! {
    /// A stream was reset.
    reset "RST_STREAM":
    NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED FRAME_SIZE_ERROR REFUSED_STREAM
    CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM INADEQUATE_SECURITY HTTP_1_1_REQUIRED
}

ends! {
    /// The connection takes no streams any more.
    retreat "GOAWAY":
    NO_ERROR PROTOCOL_ERROR INTERNAL_ERROR FLOW_CONTROL_ERROR SETTINGS_TIMEOUT STREAM_CLOSED FRAME_SIZE_ERROR REFUSED_STREAM
    CANCEL COMPRESSION_ERROR CONNECT_ERROR ENHANCE_YOUR_CALM INADEQUATE_SECURITY HTTP_1_1_REQUIRED
}
