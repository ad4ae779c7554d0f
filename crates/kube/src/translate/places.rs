//! The seam to the mode of deployment: the addresses of Gateways.

use std::fmt;

use ringmain_gateway::model::Addr;

use crate::objects::Gateway;

/// The addresses of Gateways, as the mode of deployment assigns them: an address of its own out of a range, those of the
/// nodes, or those of a Service.
///
/// Both functions are called several times in a translation and must return the same for the same Gateway.
pub trait Places {
    /// Returns the addresses for the status of a Gateway, with regard to the addresses that it requests.
    fn place(&self, gateway: &Gateway) -> Placement;

    /// Returns the addresses that the listeners of a Gateway with this port bind. None: the port cannot be served.
    fn bind(&self, gateway: &Gateway, port: u16) -> Vec<Addr>;
}

/// The addresses of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// For `status.addresses`.
    pub addresses: Vec<StatusAddress>,
    /// A requested address that is not assigned.
    pub problem: Option<AddressProblem>,
}

/// An entry of `status.addresses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusAddress {
    /// `IPAddress` or `Hostname`.
    pub kind: &'static str,
    /// The address.
    pub value: String,
}

impl StatusAddress {
    /// An IP address.
    #[must_use]
    pub fn ip(address: impl fmt::Display) -> StatusAddress {
        StatusAddress {
            kind: "IPAddress",
            value: address.to_string(),
        }
    }
}

/// A requested address that is not assigned. The texts are messages for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressProblem {
    /// Its type is not supported: the Gateway is not accepted and not served.
    Unsupported(String),
    /// It cannot be used here: the Gateway is not programmed. Its other addresses are served.
    NotUsable(String),
    /// There is no address for it now: the Gateway is not programmed.
    NotAssigned(String),
}
