//! Filters that a program brings along. Whether it has them is for the gateway to say.

use std::sync::Arc;

use ringmain_gateway::limits;
use ringmain_gateway::model::{FilterUse, Options, Policy};

use super::Builder;
use crate::config::document::{self, Maybe};
use crate::config::error::Position;
use crate::config::fields::{At, Either, Free, OneOrMany, Pairs, Switch};

/// One of them, or several, as they are written.
pub(super) type Filters = Maybe<Switch<OneOrMany<Either<String, document::Filter>>>>;

impl Builder<'_> {
    /// A rule's filters, in place of those of its route.
    pub(super) fn filters(&self, all: &mut Vec<Policy>, part: Filters) {
        let Some(At {
            value,
            position,
            clean,
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
        let filters = At {
            value,
            position,
            clean,
        }
        .into_list();
        let most = limits::FILTERS;
        if filters.is_empty() || filters.len() > most {
            let found = filters.len().to_string();
            self.errors.tell(
                position,
                format!("from 1 to {most} filters, by their names"),
                found,
            );
        }
        all.extend(filters.into_iter().filter_map(|at| self.filter(at)));
    }

    fn filter(&self, at: At<Either<String, document::Filter>>) -> Option<Policy> {
        let (name, options) = match at.value? {
            Either::Short(name) => (name, Options::Nothing),
            Either::Full(filter) => {
                let Some(name) = filter.name else {
                    self.tell_nameless(at.position, "none");
                    return None;
                };
                let options = filter.options.and_then(|at| at.value);
                (name.value?, options.map_or(Options::Nothing, options_of))
            }
        };
        if name.is_empty() {
            self.tell_nameless(at.position, "an empty one");
            return None;
        }
        Some(Policy::Filter(Arc::new(FilterUse {
            name: name.into(),
            options,
        })))
    }

    fn tell_nameless(&self, position: Position, found: &str) {
        self.errors.tell(position, "the `name` of a filter", found);
    }
}

fn options_of(pairs: Pairs<Free>) -> Options {
    let pairs = pairs.0.into_iter();
    let pairs = pairs.filter_map(|(name, at)| Some((name.value?.into(), value(at.value?))));
    Options::Map(pairs.collect())
}

fn value(free: Free) -> Options {
    match free {
        Free::Nothing => Options::Nothing,
        Free::Bool(value) => Options::Bool(value),
        Free::Number(text) => Options::Number(text.into()),
        Free::Text(text) => Options::Text(text.into()),
        Free::List(list) => Options::List(list.into_iter().map(value).collect()),
        Free::Map(pairs) => options_of(pairs),
    }
}
