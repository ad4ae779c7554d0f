//! Resolution of plain values by the core schema of YAML 1.2.2 (§10.3.2).

/// The kinds that the core schema knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarKind {
    Null,
    Bool(bool),
    Int,
    Float,
    Text,
}

/// Resolves the kind of a plain value.
pub(super) fn resolve_kind(text: &str) -> ScalarKind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => ScalarKind::Null,
        "true" | "True" | "TRUE" => ScalarKind::Bool(true),
        "false" | "False" | "FALSE" => ScalarKind::Bool(false),
        ".nan" | ".NaN" | ".NAN" => ScalarKind::Float,
        _ if is_radix(text, "0o", |byte| matches!(byte, b'0'..=b'7')) => ScalarKind::Int,
        _ if is_radix(text, "0x", |byte| byte.is_ascii_hexdigit()) => ScalarKind::Int,
        _ => decimal_kind(text.strip_prefix(['-', '+']).unwrap_or(text)),
    }
}

fn is_radix(text: &str, prefix: &str, is_digit: impl Fn(u8) -> bool) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(is_digit))
}

/// `[0-9]+`, or `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, or infinity, without the sign.
fn decimal_kind(text: &str) -> ScalarKind {
    if matches!(text, ".inf" | ".Inf" | ".INF") {
        return ScalarKind::Float;
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_exponent_valid = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && are_digits(digits)
    });
    let any = !whole.is_empty() || fraction.is_some_and(|fraction| !fraction.is_empty());
    if !any || !is_exponent_valid || !are_digits(whole) || !fraction.is_none_or(are_digits) {
        ScalarKind::Text
    } else if fraction.is_none() && exponent.is_none() {
        ScalarKind::Int
    } else {
        ScalarKind::Float
    }
}

#[cfg(test)]
mod tests {
    use super::{ScalarKind, resolve_kind};

    #[test]
    fn the_table_of_the_core_schema() {
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(resolve_kind(text), ScalarKind::Null, "{text}");
        }
        assert_eq!(
            (resolve_kind("True"), resolve_kind("FALSE")),
            (ScalarKind::Bool(true), ScalarKind::Bool(false))
        );
        for text in ["0", "-19", "+7", "007", "0o17", "0x3A"] {
            assert_eq!(resolve_kind(text), ScalarKind::Int, "{text}");
        }
        for text in [
            "0.", "-0.0", ".5", "+12e03", "-2E+05", "1e3", ".inf", "-.Inf", "+.INF", ".NaN",
        ] {
            assert_eq!(resolve_kind(text), ScalarKind::Float, "{text}");
        }
        for text in [
            "nUll",
            "yes",
            "on",
            "tRue",
            "-",
            "+",
            ".",
            "-.",
            "e3",
            ".e3",
            "1e",
            "1e+",
            "0o8",
            "0x",
            "-0x1",
            "1_000",
            "0b1",
            "1.2.3",
            "127.0.0.1:80",
            "inf",
            "-.nan",
            "--1",
            "1 2",
        ] {
            assert_eq!(resolve_kind(text), ScalarKind::Text, "{text}");
        }
    }
}
