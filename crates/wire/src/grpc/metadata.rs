//! Metadata: fields of head and trailers that belong to the application, with bytes in base64 where a name ends in `-bin`.

use base64::alphabet;
use base64::engine::general_purpose::GeneralPurposeConfig;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose};

use crate::h1::grammar;

/// Reads padded values and others; writes no padding (Custom-Metadata, `ASCII-Value`).
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Whether values of that name are bytes.
#[must_use]
pub fn is_binary(name: &str) -> bool {
    let end = name.len().saturating_sub(4);
    name.as_bytes()[end..].eq_ignore_ascii_case(b"-bin")
}

/// Whether a name is the protocol's own, or HTTP's: metadata cannot have it.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    const NAMES: [&str; 4] = ["content-type", "te", "trailer", "user-agent"];
    let grpc = name.as_bytes().get(..5);
    grpc.is_some_and(|start| start.eq_ignore_ascii_case(b"grpc-"))
        || NAMES.iter().any(|reserved| name.eq_ignore_ascii_case(reserved))
}

/// Whether metadata can have that name: letters in lower case, digits, `_`, `-` and `.`.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
    !name.is_empty() && name.bytes().all(fits)
}

/// Whether a value can stand where no bytes can: printable ASCII, without spaces around it.
#[must_use]
pub fn is_text(value: &str) -> bool {
    value.trim_ascii().len() == value.len() && value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// The values of a field whose name ends in `-bin`: several may stand in one line, parted by commas. `None` in place of one that is
/// not base64.
pub fn binary_values(line: &[u8]) -> impl Iterator<Item = Option<Vec<u8>>> {
    grammar::list(line).map(|value| BASE64.decode(value).ok())
}

/// Appends bytes as the value of a field whose name ends in `-bin`.
pub fn write_binary(out: &mut String, bytes: &[u8]) {
    BASE64.encode_string(bytes, out);
}
