//! Multiples of a share.

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
