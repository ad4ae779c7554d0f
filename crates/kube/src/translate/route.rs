//! Attachment of routes to listeners, and their conditions at each parent.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringmain_gateway::model::{Hostname, Name, Protocol};

use super::backend::Usage;
use super::condition::Fault;
use super::gateway::{Attached, Owner};
use super::{Condition, Context, Parent, part_name};
use crate::objects::{GATEWAY_GROUP, Key, Kind, Meta, ParentRef};
use crate::store::Referrer;

/// The parts that all kinds of routes have.
pub(super) struct RouteHead<'a> {
    pub(super) kind: Kind,
    pub(super) meta: &'a Meta,
    pub(super) parents: &'a [ParentRef],
    hostnames: Vec<Hostname>,
    /// A hostname that cannot be used.
    hostname_fault: Option<Fault>,
    /// The route has hosts, and none can be used: it is for no request.
    has_no_host: bool,
}

/// The listeners that one set of rules is for.
pub(super) struct Attachment {
    pub(super) name: Name,
    pub(super) listeners: Vec<Name>,
    pub(super) hostnames: Vec<Hostname>,
}

/// Faults of a route's rules.
#[derive(Default)]
pub(super) struct RuleFaults {
    /// A reference that is not resolved.
    pub(super) unresolved: Option<Fault>,
    /// A value that is not supported.
    pub(super) invalid: Option<Fault>,
    /// No rule can be used.
    pub(super) all_invalid: bool,
}

/// A parent while the rules are translated.
struct ParentState<'a> {
    parent_ref: &'a ParentRef,
    /// The Gateway, and its object that has the listeners, by their indices.
    place: (usize, usize),
    /// By their indices there.
    listeners: Vec<usize>,
    accepted: Option<Fault>,
}

impl<'a> RouteHead<'a> {
    pub(super) fn new(
        kind: Kind,
        meta: &'a Meta,
        parents: &'a [ParentRef],
        hostnames: &[String],
    ) -> RouteHead<'a> {
        let mut head = RouteHead {
            kind,
            meta,
            parents,
            hostnames: Vec::new(),
            hostname_fault: None,
            has_no_host: false,
        };
        for hostname in hostnames {
            match Hostname::parse(hostname) {
                Ok(hostname) => head.hostnames.push(hostname),
                Err(error) => head.hostname_fault = Some(Fault::new("UnsupportedValue", error.to_string())),
            }
        }
        head.has_no_host = head.hostnames.is_empty() && !hostnames.is_empty();
        head
    }

    pub(super) fn key(&self) -> Key {
        Key::new(
            self.kind,
            Arc::clone(&self.meta.namespace),
            Arc::clone(&self.meta.name),
        )
    }

    /// Attaches the route, translates its rules for each Gateway by `rules`, and reports it. Rules that differ between Gateways
    /// (their backends receive different certificates) become several parts.
    pub(super) fn translate<T: PartialEq>(
        &self,
        context: &mut Context<'_>,
        attached: &Attached,
        mut rules: impl FnMut(&mut Context<'_>, &Usage<'_>) -> (T, RuleFaults),
    ) -> Vec<(Attachment, T)> {
        let states: Vec<_> = self
            .parents
            .iter()
            .filter_map(|parent| self.attach(context, attached, parent))
            .collect();
        for state in &states {
            let owner = owner(attached, state);
            for at in &state.listeners {
                if owner.listeners[*at].conflict.is_none() {
                    context.reads.listeners.insert((owner.key.clone(), *at));
                }
            }
        }
        let mut parts: Vec<(Attachment, T)> = Vec::new();
        let mut findings = Vec::new();
        for state in &states {
            let mut names = Vec::new();
            let mut faults = RuleFaults::default();
            for passthrough in self.modes(attached, state) {
                let gateway = &attached.gateways[state.place.0];
                let all = &owner(attached, state).listeners;
                let usage = Usage {
                    from: Referrer {
                        kind: self.kind,
                        namespace: &self.meta.namespace,
                    },
                    gateway: &gateway.id,
                    certificate: gateway
                        .backend_certificate
                        .as_ref()
                        .and_then(|found| found.as_ref().ok()),
                    passthrough,
                    grpc: false,
                };
                let (translated, found) = rules(context, &usage);
                faults = found;
                let listeners = state.listeners.iter().map(|at| &all[*at]);
                let listeners = listeners.filter(|listener| {
                    let is_passthrough = listener.protocol() == Some(Protocol::TlsPassthrough);
                    gateway.is_emitted(listener) && is_passthrough == passthrough
                });
                let listeners: Vec<Name> = listeners
                    .map(|listener| Arc::clone(&listener.base.part))
                    .collect();
                // A route without listeners would apply to all listeners, and one without hostnames to all hostnames.
                if !listeners.is_empty() && !self.has_no_host {
                    names.push(self.add_part(&mut parts, listeners, translated, &usage));
                }
            }
            findings.push(self.finding(state, &faults, names));
        }
        context.findings.routes.insert(self.key(), Arc::new(findings));
        parts
    }

    /// The modes of the listeners of a parent: whether they pass TLS through. At least one, for the faults of the rules.
    fn modes(&self, attached: &Attached, state: &ParentState<'_>) -> BTreeSet<bool> {
        let all = &owner(attached, state).listeners;
        let modes = state
            .listeners
            .iter()
            .map(|at| all[*at].protocol() == Some(Protocol::TlsPassthrough));
        let mut modes: BTreeSet<bool> = modes.collect();
        if modes.is_empty() {
            modes.insert(false);
        }
        modes
    }

    fn add_part<T: PartialEq>(
        &self,
        parts: &mut Vec<(Attachment, T)>,
        listeners: Vec<Name>,
        translated: T,
        usage: &Usage<'_>,
    ) -> Name {
        if let Some((part, _)) = parts.iter_mut().find(|(_, other)| *other == translated) {
            for listener in listeners {
                if !part.listeners.contains(&listener) {
                    part.listeners.push(listener);
                }
            }
            return Arc::clone(&part.name);
        }
        let suffix = match (parts.is_empty(), usage.passthrough) {
            (true, _) => String::new(),
            (false, false) => format!("+{}", usage.gateway),
            (false, true) => format!("+{}+passthrough", usage.gateway),
        };
        let name = part_name(&self.key(), &suffix);
        let attachment = Attachment {
            name: Arc::clone(&name),
            listeners,
            hostnames: self.hostnames.clone(),
        };
        parts.push((attachment, translated));
        name
    }

    /// Returns the listeners that the route attaches to by one reference. `None`: the parent is none of ours.
    fn attach(
        &self,
        context: &mut Context<'_>,
        attached: &Attached,
        parent: &'a ParentRef,
    ) -> Option<ParentState<'a>> {
        if parent.group.as_deref().unwrap_or(GATEWAY_GROUP) != GATEWAY_GROUP {
            return None;
        }
        let kind = Kind::parse(parent.kind.as_deref().unwrap_or("Gateway"))?;
        let own = &self.meta.namespace;
        let key = match parent.namespace.as_deref() {
            Some(namespace) => Key::new(kind, namespace, &*parent.name),
            None => Key::new(kind, Arc::clone(own), &*parent.name),
        };
        let place = attached.parent(&key);
        context.reads.parents.insert(key);
        let place = place?;
        let listeners = &attached.gateways[place.0].owners[place.1].listeners;
        let is_selected = |at: &usize| {
            let spec = &listeners[*at].base.spec;
            let section = parent.section_name.as_deref().unwrap_or_default();
            (section.is_empty() || spec.name == section) && parent.port.is_none_or(|port| port == spec.port)
        };
        let selected: Vec<usize> = (0..listeners.len()).filter(is_selected).collect();
        let allows = |at: &usize| {
            let listener = &listeners[*at];
            listener.base.kinds.contains(&self.kind) && listener.allows(context.store, own)
        };
        let allowed: Vec<usize> = selected.iter().copied().filter(allows).collect();
        let has_host = |at: &usize| self.intersects(listeners[*at].base.hostname.as_ref());
        let matching: Vec<usize> = allowed.iter().copied().filter(has_host).collect();
        let accepted = match (selected.len(), allowed.len(), matching.len()) {
            (0, ..) => Some(Fault::new("NoMatchingParent", "the parent has no such listener")),
            (_, 0, _) => Some(Fault::new(
                "NotAllowedByListeners",
                "no listener allows this route",
            )),
            (_, _, 0) => Some(Fault::new(
                "NoMatchingListenerHostname",
                "no listener has one of the hostnames",
            )),
            _ => None,
        };
        Some(ParentState {
            parent_ref: parent,
            place,
            listeners: matching,
            accepted,
        })
    }

    fn intersects(&self, listener: Option<&Hostname>) -> bool {
        let Some(listener) = listener.filter(|_| !matches!(self.kind, Kind::TcpRoute | Kind::UdpRoute))
        else {
            return !self.has_no_host;
        };
        (self.hostnames.is_empty() && !self.has_no_host)
            || self
                .hostnames
                .iter()
                .any(|hostname| have_common_host(listener, hostname))
    }

    fn finding(&self, state: &ParentState<'_>, faults: &RuleFaults, parts: Vec<Name>) -> Parent {
        let invalid = faults.invalid.as_ref().or(self.hostname_fault.as_ref());
        let is_useless = faults.all_invalid || self.has_no_host;
        let hostnames = self.hostname_fault.as_ref().filter(|_| self.has_no_host);
        let accepted = hostnames
            .or(state.accepted.as_ref())
            .or(invalid.filter(|_| is_useless));
        let mut conditions = vec![
            Condition::unless("Accepted", "Accepted", accepted),
            Condition::unless("ResolvedRefs", "ResolvedRefs", faults.unresolved.as_ref()),
        ];
        if let Some(fault) = invalid.filter(|_| accepted.is_none()) {
            conditions.push(Condition {
                kind: "PartiallyInvalid",
                is_true: true,
                reason: fault.reason,
                message: format!("requests of invalid parts are answered 500: {}", fault.message),
            });
        }
        Parent {
            parent_ref: state.parent_ref.clone(),
            conditions,
            parts,
        }
    }
}

fn owner<'a>(attached: &'a Attached, state: &ParentState<'_>) -> &'a Owner {
    let (gateway, owner) = state.place;
    &attached.gateways[gateway].owners[owner]
}

/// Returns whether there is a host that both are for.
fn have_common_host(a: &Hostname, b: &Hostname) -> bool {
    match (a.wildcard_suffix(), b.wildcard_suffix()) {
        (None, _) => b.matches(a.as_str()),
        (_, None) => a.matches(b.as_str()),
        (Some(a), Some(b)) => a.ends_with(b) || b.ends_with(a),
    }
}
