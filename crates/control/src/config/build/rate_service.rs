//! The policy of an external rate limit service.

use std::time::Duration;

use ringmain_gateway::limits::RATE_DESCRIPTORS;
use ringmain_gateway::model::{
    self, ClaimPath, HeaderMatch, Policy, RateDescriptor, RateEntry, RateEntryValue, RateKey,
};

use super::{Builder, field_value, list_items, parsed_items, parsed_value, set_if_some};
use crate::config::document::{self, Field, OneOrManyField};
use crate::config::error::FilePosition;
use crate::config::fields::{Parsed, Spanned};

impl Builder<'_> {
    pub(super) fn build_rate_service(
        &mut self,
        part: document::RateServiceSection,
        position: FilePosition,
    ) -> Option<Policy> {
        let upstream = self.resolve_service(part.to, position, true)?;
        let domain = field_value(part.domain).unwrap_or_default();
        if domain.is_empty() {
            self.errors.report(position, "the key `domain`, a name", "none");
        }
        let descriptors = self.build_descriptors(part.descriptors, position);
        let mut policy = model::RateService::new(upstream, domain, descriptors);
        policy.host = parsed_value(part.host);
        policy.upstream_headers = parsed_items(part.upstream_headers);
        policy.limit_headers = field_value(part.limit_headers).unwrap_or(false);
        if let Some(status) = &part.status {
            set_if_some(&mut policy.status, self.check_range(status, 400, 599));
        }
        let min = Duration::from_millis(1);
        set_if_some(
            &mut policy.timeout,
            self.check_time_range("timeout", &part.timeout, min, Duration::MAX),
        );
        policy.fail_open = field_value(part.on_failure) == Some(document::OnFailure::Allow);
        Some(Policy::RateService(policy.into()))
    }

    fn build_descriptors(
        &mut self,
        part: OneOrManyField<document::RateDescriptorSection>,
        position: FilePosition,
    ) -> Vec<RateDescriptor> {
        let sections = list_items(part);
        self.check_count(sections.len(), "descriptors", position);
        let mut descriptors = Vec::with_capacity(sections.len());
        for at in sections {
            let Some(section) = at.value else { continue };
            let entries = list_items(section.entries);
            self.check_count(entries.len(), "entries", at.position);
            let entries = entries.into_iter();
            descriptors.push(RateDescriptor {
                entries: entries.filter_map(|at| self.build_entry(at)).collect(),
                hits: field_value(section.hits),
            });
        }
        descriptors
    }

    fn check_count(&self, count: usize, name: &str, position: FilePosition) {
        let max = RATE_DESCRIPTORS;
        if !(1..=max).contains(&count) {
            let expected = format!("from 1 to {max} {name}");
            self.errors.report(position, expected, count.to_string());
        }
    }

    fn build_entry(&mut self, at: Spanned<document::RateEntrySection>) -> Option<RateEntry> {
        let position = at.position;
        let part = at.value?;
        self.check_entry_keys(&part, position);
        let (default_key, value) = match (part.by, part.value) {
            (Some(by), None) => self.build_entry_part(by, &part.ipv4_prefix, &part.ipv6_prefix)?,
            (None, Some(text)) => {
                let text = text.value?;
                if text.is_empty() {
                    self.errors
                        .report(position, "a `value` of 1 character or more", "none");
                }
                let headers = part.headers.0.into_iter().filter_map(|(key, at)| {
                    let name = self.header_name(&key)?;
                    let value = self.build_value_match(at)?;
                    Some(HeaderMatch { name, value })
                });
                let headers: Vec<HeaderMatch> = headers.collect();
                let expect = !field_value(part.invert).unwrap_or(false);
                match headers.is_empty() {
                    true => ("generic_key".to_owned(), RateEntryValue::Constant(text.into())),
                    false => (
                        "header_match".to_owned(),
                        RateEntryValue::Match {
                            text: text.into(),
                            headers,
                            expect,
                        },
                    ),
                }
            }
            (by, _) => {
                let found = if by.is_some() { "both" } else { "neither" };
                self.errors.report(position, "either `by` or `value`", found);
                return None;
            }
        };
        let key = field_value(part.key).unwrap_or(default_key);
        if key.is_empty() {
            self.errors
                .report(position, "a `key` of 1 character or more", "none");
        }
        Some(RateEntry {
            key: key.into(),
            value,
            optional: field_value(part.optional).unwrap_or(false),
        })
    }

    /// Checks that no key of an entry would be without effect.
    fn check_entry_keys(&self, part: &document::RateEntrySection, position: FilePosition) {
        let by = part.by.as_ref().and_then(|at| at.value.as_ref());
        let is_source = matches!(by, Some(document::RateEntryPart::Source));
        let has_headers = !part.headers.0.is_empty();
        let inverts = part.invert.as_ref().and_then(|at| at.value) == Some(true);
        for (key, is_misplaced, place) in [
            (
                "ipv4_prefix",
                part.ipv4_prefix.is_some() && !is_source,
                "`by: source`",
            ),
            (
                "ipv6_prefix",
                part.ipv6_prefix.is_some() && !is_source,
                "`by: source`",
            ),
            ("headers", has_headers && part.value.is_none(), "`value`"),
            ("invert", inverts && !has_headers, "`headers`"),
        ] {
            if is_misplaced {
                let expected = format!("`{key}` only beside {place}");
                self.errors.report(position, expected, "it without that");
            }
        }
    }

    /// Returns the default key, and the value, of an entry that is a part of the request.
    fn build_entry_part(
        &self,
        by: Spanned<document::RateEntryPart>,
        v4: &Field<u8>,
        v6: &Field<u8>,
    ) -> Option<(String, RateEntryValue)> {
        let position = by.position;
        let named = |name: &str| {
            if name.is_empty() {
                self.errors
                    .report(position, "a name of 1 character or more", "none");
            }
            name.to_ascii_lowercase()
        };
        let (key, part) = match by.value? {
            document::RateEntryPart::Route => return Some(("route".to_owned(), RateEntryValue::Route)),
            document::RateEntryPart::Source => {
                let prefix = |at: &Field<u8>, max| match at {
                    Some(at) => self.check_range(at, 0, max),
                    None => Some(max),
                };
                let is_masked = v4.is_some() || v6.is_some();
                let key = if is_masked {
                    "masked_remote_address"
                } else {
                    "remote_address"
                };
                let (v4, v6) = (prefix(v4, 32)?, prefix(v6, 128)?);
                (key.to_owned(), RateKey::Source { v4, v6 })
            }
            document::RateEntryPart::Header(Parsed(name)) => (named(name.as_str()), RateKey::Header(name)),
            document::RateEntryPart::Cookie(name) => (named(&name), RateKey::Cookie(name.into())),
            document::RateEntryPart::Claim(path) => (named(&path), RateKey::Claim(ClaimPath(path.into()))),
            document::RateEntryPart::Identity => ("identity".to_owned(), RateKey::Identity),
            document::RateEntryPart::Host => ("host".to_owned(), RateKey::Host),
            document::RateEntryPart::Path => ("path".to_owned(), RateKey::Path),
            document::RateEntryPart::Method => ("method".to_owned(), RateKey::Method),
        };
        Some((key, RateEntryValue::Request(part)))
    }
}
