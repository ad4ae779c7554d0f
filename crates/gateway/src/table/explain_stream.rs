//! Explains stream routing: the route that takes a connection, and the reason that each other route does not.
//!
//! For operators, never on the path of a connection.

use super::describe;
use super::explain::{Why, listed};
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
    pub others: Vec<(Name, String)>,
    /// The route that takes the connection; `None`: it is reset, or closed with the alert `unrecognized_name` where TLS is terminated.
    pub taken: Option<StreamTaken>,
    /// Routes that did not take the connection, the closest first: at most [`limits::EXPLAINED`].
    pub rejected: Vec<(Name, Why)>,
    /// The number of further routes.
    pub more: usize,
}

/// The route that takes a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamTaken {
    /// The route.
    pub route: Name,
    /// The matching host.
    pub by: String,
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
        let asked = asked(sni);
        let listener = self.addresses().admit(address, sni.unwrap_or_default());
        let all = self.addresses().listeners(address);
        let others = all.filter(|(id, _)| Some(*id) != listener).map(|(_, other)| {
            let hosts = listed(&other.hostnames);
            (other.name.clone(), format!("it is for {hosts}, not for {asked}"))
        });
        let mut explanation = StreamExplanation {
            listener: listener.map(|id| self.listener(id).name.clone()),
            protocol: listener.map(|id| self.listener(id).protocol),
            others: others.collect(),
            taken: None,
            rejected: Vec::new(),
            more: 0,
        };
        let Some(id) = listener.filter(|id| !self.listener(*id).protocol.is_http()) else {
            return explanation;
        };
        // Without TLS there is no SNI to match.
        let sni = sni.filter(|_| self.listener(id).protocol.has_sni());
        let found = self.stream(id, sni);
        explanation.taken = found.map(|route| taken(route, sni));
        let streams = self.config().streams.iter();
        let others = streams.filter(|stream| found.is_none_or(|found| found.name != stream.name));
        explanation.rejected = others
            .map(|stream| (stream.name.clone(), self.stream_why(id, stream, sni)))
            .collect();
        let rejected = &mut explanation.rejected;
        rejected.sort_by_key(|(_, why)| std::cmp::Reverse(why.stage()));
        explanation.more = rejected.len().saturating_sub(limits::EXPLAINED);
        rejected.truncate(limits::EXPLAINED);
        explanation
    }

    /// Returns the reason that a route does not take a connection.
    fn stream_why(&self, listener: ListenerId, stream: &StreamRoute, sni: Option<&str>) -> Why {
        let name = &self.listener(listener).name;
        if !stream.listeners.is_empty() && !stream.listeners.contains(name) {
            let listeners: Vec<_> = stream.listeners.iter().map(|name| format!("`{name}`")).collect();
            let listeners = listeners.join(", ");
            return Why::Listener(format!("its listeners are {listeners}, not `{name}`"));
        }
        let hosts = &stream.hostnames;
        let holds = |sni: &str| hosts.iter().any(|host| host.matches(sni));
        if !hosts.is_empty() && !sni.is_some_and(holds) {
            return Why::Host(format!("it is for {}, not for {}", listed(hosts), asked(sni)));
        }
        let by = by(stream, sni);
        Why::Later(format!("{by} holds too, but comes later"))
    }
}

fn asked(sni: Option<&str>) -> String {
    sni.map_or_else(|| "a client that names none".to_owned(), |sni| format!("`{sni}`"))
}

/// Returns the most specific of a route's hosts that matches a connection.
fn by(stream: &StreamRoute, sni: Option<&str>) -> String {
    let holding = stream
        .hostnames
        .iter()
        .filter(|host| sni.is_some_and(|sni| host.matches(sni)));
    let nearest = holding.max_by_key(|host| host.wildcard_suffix().map_or(usize::MAX, str::len));
    nearest.map_or_else(|| "every connection".to_owned(), |host| format!("host `{host}`"))
}

fn taken(stream: &StreamRoute, sni: Option<&str>) -> StreamTaken {
    let mut steps = Vec::new();
    describe::shares(&mut steps, &stream.backends, |_, _| {});
    if steps.is_empty() {
        steps.push("close it: there is nobody to send it to".to_owned());
    }
    if let Some(idle) = stream.idle {
        steps.push(format!("end after {idle:?} of silence"));
    }
    StreamTaken {
        route: stream.name.clone(),
        by: by(stream, sni),
        steps,
    }
}
