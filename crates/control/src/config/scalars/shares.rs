//! Shares and their multiples.

use super::invalid;
use crate::config::fields::ParseScalar;

/// A multiple: `1.2`, in hundredths.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Multiple(pub(in crate::config) u16);

impl ParseScalar for Multiple {
    const NAME: &'static str = "multiple";
    const DESCRIPTION: &'static str = "A number from 1 to 100 with at most two decimals: `1.2`.";
    const EXAMPLES: &'static [&'static str] = &["1.2", "1.05", "2"];
    const PATTERN: &'static str = "^[0-9]{1,3}(\\.[0-9]{1,2})?$";
    const ALLOWS_NUMBER: bool = true;

    fn parse(text: &str) -> Result<Multiple, String> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = digits(whole) && digits(decimals) && decimals.len() <= 2;
        let hundredths = format!("{whole}{decimals:0<2}").parse().ok();
        match hundredths.filter(|hundredths| is_number && (100..=10_000).contains(hundredths)) {
            Some(hundredths) => Ok(Multiple(hundredths)),
            None => invalid(
                "a number from 1 to 100 with at most two decimals, such as 1.2",
                text,
            ),
        }
    }
}

/// A fraction: `1%`, `0.5%`, `1/1000`.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Fraction(pub(in crate::config) ringmain_gateway::model::Fraction);

impl ParseScalar for Fraction {
    const NAME: &'static str = "share";
    const DESCRIPTION: &'static str = "A share: `10%`, `0.5%` or `1/1000`.";
    const EXAMPLES: &'static [&'static str] = &["10%", "1/1000"];
    const PATTERN: &'static str = "^([0-9]+(\\.[0-9]{1,4})?%|[0-9]+/[0-9]+)$";

    fn parse(text: &str) -> Result<Fraction, String> {
        let fraction = |part: u32, of: u32| ringmain_gateway::model::Fraction { part, of };
        let found = match (text.strip_suffix('%'), text.split_once('/')) {
            (Some(percent), _) => {
                let (whole, parts) = percent.split_once('.').unwrap_or((percent, "0"));
                let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits(whole) && digits(parts) && parts.len() <= 4;
                let scaled = |parts: &str| format!("{parts:0<4}").parse::<u32>().ok();
                let whole = whole.parse::<u32>().ok().filter(|whole| number && *whole <= 100);
                whole
                    .zip(scaled(parts))
                    .map(|(whole, parts)| fraction(whole * 10_000 + parts, 1_000_000))
            }
            (None, Some((part, of))) => part
                .parse()
                .ok()
                .zip(of.parse().ok())
                .map(|(part, of)| fraction(part, of)),
            (None, None) => None,
        };
        match found.filter(|fraction| fraction.part <= fraction.of && fraction.of > 0) {
            Some(fraction) => Ok(Fraction(fraction)),
            None => invalid("a share of at most the whole, such as 10%, 0.5% or 1/1000", text),
        }
    }
}
