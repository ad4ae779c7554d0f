//! Explains stream routing: the route that takes a connection, and the reason that each other route does not.
//!
//! For operators, never on the path of a connection.

use super::describe;
use super::explain::{RejectionReason, list_hosts};
use super::{AddressId, ListenerId, Table};
use crate::limits;
use crate::model::{Name, Protocol, StreamRoute};

/// The explanation of a connection's routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamExplanation {
    /// The listener; `None`: the address has none for the SNI.
    pub listener: Option<Name>,
    /// The protocol of the listener. With HTTP, requests have routes of their own, and stream routes are not checked.
    pub protocol: Option<Protocol>,
    /// Other listeners of the address, each with the reason that the connection is not theirs.
    pub other_listeners: Vec<(Name, String)>,
    /// The route that takes the connection; `None`: it is reset, or closed with the alert `unrecognized_name` where TLS is terminated.
    pub selected: Option<SelectedStream>,
    /// Routes that did not take the connection, the closest first: at most [`limits::EXPLAINED`].
    pub rejected: Vec<(Name, RejectionReason)>,
    /// The number of further routes.
    pub omitted: usize,
}

/// The route that takes a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedStream {
    /// The route.
    pub route: Name,
    /// The matching host.
    pub matched_by: String,
    /// The steps of the route, in order.
    pub steps: Vec<String>,
}

impl<P> Table<P> {
    /// Explains the routing of a connection at an address whose client sends `sni`. Without TLS there is no SNI. Routes with problems
    /// are explained as if they were served.
    ///
    /// # Panics
    /// `address` is of another table and beyond this one's addresses.
    #[must_use]
    pub fn explain_stream(&self, address: AddressId, sni: Option<&str>) -> StreamExplanation {
        let requested = describe_sni(sni);
        let listener = self.addresses().select_listener(address, sni.unwrap_or_default());
        let all = self.addresses().listeners(address);
        let others = all.filter(|(id, _)| Some(*id) != listener).map(|(_, other)| {
            let hosts = list_hosts(&other.hostnames);
            (
                other.name.clone(),
                format!("matches only {hosts}, not {requested}"),
            )
        });
        let mut explanation = StreamExplanation {
            listener: listener.map(|id| self.listener(id).name.clone()),
            protocol: listener.map(|id| self.listener(id).protocol),
            other_listeners: others.collect(),
            selected: None,
            rejected: Vec::new(),
            omitted: 0,
        };
        let Some(id) = listener.filter(|id| !self.listener(*id).protocol.is_http()) else {
            return explanation;
        };
        // Without TLS there is no SNI to match.
        let sni = sni.filter(|_| self.listener(id).protocol.has_sni());
        let found = self.find_stream(id, sni);
        explanation.selected = found.map(|route| selected_stream(route, sni, self.listener(id).protocol));
        let streams = self.config().streams.iter();
        let others = streams.filter(|stream| found.is_none_or(|found| found.name != stream.name));
        explanation.rejected = others
            .map(|stream| (stream.name.clone(), self.stream_rejection(id, stream, sni)))
            .collect();
        let rejected = &mut explanation.rejected;
        rejected.sort_by_key(|(_, why)| std::cmp::Reverse(why.closeness()));
        explanation.omitted = rejected.len().saturating_sub(limits::EXPLAINED);
        rejected.truncate(limits::EXPLAINED);
        explanation
    }

    /// Returns the reason that a route does not take a connection.
    fn stream_rejection(
        &self,
        listener: ListenerId,
        stream: &StreamRoute,
        sni: Option<&str>,
    ) -> RejectionReason {
        let name = &self.listener(listener).name;
        if !stream.listeners.is_empty() && !stream.listeners.contains(name) {
            let listeners: Vec<_> = stream.listeners.iter().map(|name| format!("`{name}`")).collect();
            let listeners = listeners.join(", ");
            return RejectionReason::Listener(format!("attached to {listeners}, not `{name}`"));
        }
        let hosts = &stream.hostnames;
        let holds = |sni: &str| hosts.iter().any(|host| host.matches(sni));
        if !hosts.is_empty() && !sni.is_some_and(holds) {
            return RejectionReason::Host(format!(
                "matches only {}, not {}",
                list_hosts(hosts),
                describe_sni(sni)
            ));
        }
        let by = most_specific_host(stream, sni);
        RejectionReason::Later(format!("{by} also matches, but has lower precedence"))
    }
}

fn describe_sni(sni: Option<&str>) -> String {
    sni.map_or_else(|| "a client without SNI".to_owned(), |sni| format!("`{sni}`"))
}

/// Returns the most specific of a route's hosts that matches a connection.
fn most_specific_host(stream: &StreamRoute, sni: Option<&str>) -> String {
    let holding = stream
        .hostnames
        .iter()
        .filter(|host| sni.is_some_and(|sni| host.matches(sni)));
    let closest = holding.max_by_key(|host| host.wildcard_suffix().map_or(usize::MAX, str::len));
    closest.map_or_else(|| "every connection".to_owned(), |host| format!("host `{host}`"))
}

fn selected_stream(stream: &StreamRoute, sni: Option<&str>, protocol: Protocol) -> SelectedStream {
    let mut steps = Vec::new();
    describe::describe_backends(&mut steps, &stream.backends, |_, _| {});
    if steps.is_empty() {
        steps.push("close: no backend".to_owned());
    }
    let sessions = protocol.is_datagram().then_some(stream.datagrams);
    if let Some(idle) = sessions.map_or(stream.idle, |sessions| sessions.idle) {
        steps.push(format!("idle timeout {idle:?}"));
    }
    if let Some(responses) = sessions.and_then(|sessions| sessions.responses) {
        steps.push(format!("ends after {responses} responses for each datagram"));
    }
    SelectedStream {
        route: stream.name.clone(),
        matched_by: most_specific_host(stream, sni),
        steps,
    }
}
