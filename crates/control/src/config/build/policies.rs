//! What requests must pass before a rule's action.

use std::sync::Arc;

use ringmain_gateway::model::{self, Policy};
use ringmain_gateway::table::Place;

use super::{Builder, text, texts, value};
use crate::config::document::{self, Maybe};
use crate::config::error::Position;
use crate::config::values::Switch;

impl Builder<'_> {
    /// A rule's policies: its own, and of its route's those of other kinds.
    /// What is counted without a name of its own is counted by that of its `place`.
    pub(super) fn policies(
        &mut self,
        part: Maybe<document::Policies>,
        route: &[Policy],
        place: &Place,
    ) -> Vec<Policy> {
        let mut all = route.to_vec();
        let Some(part) = value(part) else { return all };
        self.policy(&mut all, part.addresses, Self::addresses, |policy| {
            matches!(policy, Policy::Addresses(_))
        });
        self.policy(
            &mut all,
            part.client_certificate,
            Self::client_certificate,
            |policy| matches!(policy, Policy::ClientCertificate(_)),
        );
        self.bounds(
            &mut all,
            (part.rate_limit, part.concurrency, part.shed, part.inject),
            place,
        );
        all
    }

    /// One kind of policy, in place of the one that was there.
    pub(super) fn policy<P: Default>(
        &mut self,
        all: &mut Vec<Policy>,
        part: Maybe<Switch<P>>,
        build: impl FnOnce(&mut Self, P, Position) -> Option<Policy>,
        is: impl Fn(&Policy) -> bool,
    ) {
        let Some(at) = part else { return };
        all.retain(|policy| !is(policy));
        let position = at.position;
        if let Some(part) = at.value.and_then(Switch::settings) {
            all.extend(build(self, part, position));
        }
    }

    fn addresses(&mut self, part: document::Addresses, position: Position) -> Option<Policy> {
        let (allow, deny) = (texts(part.allow), texts(part.deny));
        if allow.is_empty() && deny.is_empty() {
            let expected = "at least one network to `allow` or to `deny`";
            self.errors.tell(position, expected, "none");
        }
        Some(Policy::Addresses(Arc::new(model::Addresses { allow, deny })))
    }

    fn client_certificate(&mut self, part: document::ClientCertificate, _: Position) -> Option<Policy> {
        Some(Policy::ClientCertificate(Arc::new(model::ClientCertificate {
            required: value(part.required).unwrap_or(false),
            chain: value(part.chain).unwrap_or(false),
            fingerprint: text(part.fingerprint),
        })))
    }
}
