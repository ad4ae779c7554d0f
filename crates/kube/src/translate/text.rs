//! Durations of GEP-2257 and PEM.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// Parses a duration such as `1h30m` or `500ms`. `None`: it is not one.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.find(|byte: char| !byte.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit_and_rest = &rest[digits..];
        let unit_end = unit_and_rest
            .find(|byte: char| byte.is_ascii_digit())
            .unwrap_or(unit_and_rest.len());
        let ms = match &unit_and_rest[..unit_end] {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(ms)?))?;
        rest = &unit_and_rest[unit_end..];
        parts += 1;
    }
    (1..=4).contains(&parts).then_some(total)
}

/// Returns whether a PEM has a block whose label ends in `label`, and every such block decodes to DER. The data plane parses
/// the DER itself.
pub(super) fn has_pem(pem: &[u8], label: &str) -> bool {
    use base64::Engine as _;
    let Ok(text) = std::str::from_utf8(pem) else {
        return false;
    };
    let mut blocks = 0;
    let mut body: Option<String> = None;
    for line in text.lines().map(str::trim) {
        let is_mark = |mark: &str| {
            let inner = line
                .strip_prefix(mark)
                .and_then(|line| line.strip_suffix("-----"));
            inner.is_some_and(|inner| inner.ends_with(label))
        };
        if is_mark("-----BEGIN ") {
            body = Some(String::new());
        } else if is_mark("-----END ") {
            let decoded = base64::engine::general_purpose::STANDARD.decode(body.take().unwrap_or_default());
            // A sequence: every certificate and key begins with one.
            if decoded.ok().and_then(|der| der.first().copied()) != Some(0x30) {
                return false;
            }
            blocks += 1;
        } else if let Some(body) = &mut body {
            body.push_str(line);
        }
    }
    blocks > 0 && body.is_none()
}
