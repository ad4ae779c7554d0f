//! Custom filters. The gateway checks that the program registers them.

use std::sync::Arc;

use ringmain_gateway::limits;
use ringmain_gateway::model::{FilterUse, Options, Policy};

use super::Builder;
use crate::config::document::{self, Field};
use crate::config::error::FilePosition;
use crate::config::fields::{AnyValue, OneOrMany, OrderedMap, ShortOrFull, Spanned, Switch};

/// One filter or several, as written.
pub(super) type Filters = Field<Switch<OneOrMany<ShortOrFull<String, document::FilterSection>>>>;

impl Builder<'_> {
    /// Adds the filters of a rule, which replace those of its route.
    pub(super) fn add_filters(&self, all: &mut Vec<Policy>, part: Filters) {
        let Some(Spanned {
            value,
            position,
            is_valid,
        }) = part
        else {
            return;
        };
        all.retain(|policy| !matches!(policy, Policy::Filter(_)));
        let value = match value {
            Some(Switch::Full(filters)) => Some(filters),
            Some(Switch::Switch(true)) => Some(OneOrMany::default()),
            Some(Switch::Switch(false)) | None => return,
        };
        let filters = Spanned {
            value,
            position,
            is_valid,
        }
        .into_list();
        let limit = limits::FILTERS;
        if filters.is_empty() || filters.len() > limit {
            let found = filters.len().to_string();
            self.errors.report(
                position,
                format!("from 1 to {limit} filters, by their names"),
                found,
            );
        }
        all.extend(filters.into_iter().filter_map(|at| self.build_filter(at)));
    }

    fn build_filter(&self, at: Spanned<ShortOrFull<String, document::FilterSection>>) -> Option<Policy> {
        let (name, options) = match at.value? {
            ShortOrFull::Short(name) => (name, Options::Nothing),
            ShortOrFull::Full(filter) => {
                let Some(name) = filter.name else {
                    self.report_missing_name(at.position, "none");
                    return None;
                };
                let options = filter.options.and_then(|at| at.value);
                (name.value?, options.map_or(Options::Nothing, convert_options))
            }
        };
        if name.is_empty() {
            self.report_missing_name(at.position, "an empty one");
            return None;
        }
        Some(Policy::Filter(Arc::new(FilterUse {
            name: name.into(),
            options,
        })))
    }

    fn report_missing_name(&self, position: FilePosition, found: &str) {
        self.errors.report(position, "the `name` of a filter", found);
    }
}

fn convert_options(pairs: OrderedMap<AnyValue>) -> Options {
    let pairs = pairs.0.into_iter();
    let pairs = pairs.filter_map(|(name, at)| Some((name.value?.into(), convert_option(at.value?))));
    Options::Map(pairs.collect())
}

fn convert_option(free: AnyValue) -> Options {
    match free {
        AnyValue::Nothing => Options::Nothing,
        AnyValue::Bool(value) => Options::Bool(value),
        AnyValue::Number(text) => Options::Number(text.into()),
        AnyValue::Text(text) => Options::Text(text.into()),
        AnyValue::List(list) => Options::List(list.into_iter().map(convert_option).collect()),
        AnyValue::Map(pairs) => convert_options(pairs),
    }
}
