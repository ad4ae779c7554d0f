//! Queueing disciplines of a network interface, told and changed (`rtnetlink(7)`, `RTM_*QDISC`).
//!
//! Options are bytes of the discipline's own form: they go back as they came. Knows no discipline.

#[cfg(test)]
mod tests;

use std::io;

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::netlink::{Ask, Family, Message, Netlink, find, put, text, u32_at};

const NEW: u16 = 36;
const DELETE: u16 = 37;
const GET: u16 = 38;
/// `NLM_F_CREATE | NLM_F_REPLACE`.
const REPLACE: u16 = 0x400 | 0x100;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// `tcmsg`.
const HEADER: usize = 20;
/// `TC_H_ROOT`: the parent of the discipline at the root.
pub const ROOT: u32 = u32::MAX;
/// `TC_H_INGRESS`: the parent of what looks at arriving packets.
const INGRESS: u32 = 0xffff_fff1;

/// One discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// Its number, the major part in the upper half; zero for one that the kernel has made by itself.
    pub handle: u32,
    /// The class that it stands in, or [`ROOT`].
    pub parent: u32,
    /// Its name, such as `mq` or `fq_codel`.
    pub kind: String,
    /// Its options, in its own form.
    pub options: Vec<u8>,
}

/// The number of an interface in this network namespace.
///
/// # Errors
/// `ENODEV` if there is none of this name.
pub fn interface(name: &str) -> io::Result<u32> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(netdevice::name_to_index(&any, name)?)
}

/// The disciplines for packets that leave by the interface: the root first, the others by their parents.
///
/// # Errors
/// `ENODEV` if there is none of this name; those of [`Netlink::request`].
pub fn list(name: &str) -> io::Result<Vec<Qdisc>> {
    let number = interface(name)?;
    let mut netlink = Netlink::open(Family::Route)?;
    let messages = netlink.request(GET, Ask::Dump, &header(0, 0, 0))?;
    let mut found: Vec<Qdisc> = messages
        .iter()
        .filter_map(|message| parse(message, number))
        .collect();
    found.sort_by_key(|qdisc| (qdisc.parent != ROOT, qdisc.parent));
    Ok(found)
}

/// Puts a discipline in its place, instead of the one that is there. A handle of zero lets the kernel choose.
///
/// # Errors
/// `ENOENT` for a kind that the kernel has not; `EPERM`; `EINVAL` for options that it does not take.
pub fn replace(name: &str, qdisc: &Qdisc) -> io::Result<()> {
    let mut payload = header(interface(name)?, qdisc.handle, qdisc.parent);
    let mut kind = qdisc.kind.clone().into_bytes();
    kind.push(0);
    put(&mut payload, KIND, &kind);
    if !qdisc.options.is_empty() {
        put(&mut payload, OPTIONS, &qdisc.options);
    }
    let mut netlink = Netlink::open(Family::Route)?;
    netlink.request(NEW, Ask::Change(REPLACE), &payload)?;
    Ok(())
}

/// Takes away the discipline at the root: the interface has what it began with.
///
/// # Errors
/// `ENOENT` where the kernel's own is there already; `EPERM`.
pub fn delete_root(name: &str) -> io::Result<()> {
    let payload = header(interface(name)?, 0, ROOT);
    Netlink::open(Family::Route)?.request(DELETE, Ask::Change(0), &payload)?;
    Ok(())
}

fn header(interface: u32, handle: u32, parent: u32) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(interface.to_ne_bytes());
    out.extend(handle.to_ne_bytes());
    out.extend(parent.to_ne_bytes());
    out.extend([0; 4]);
    out
}

fn parse(message: &Message, interface: u32) -> Option<Qdisc> {
    let payload = &message.payload;
    if message.kind != NEW || u32_at(payload, 4)? != interface {
        return None;
    }
    let parent = u32_at(payload, 12)?;
    let attributes = payload.get(HEADER..)?;
    (parent != INGRESS).then(|| Qdisc {
        handle: u32_at(payload, 8).unwrap_or(0),
        parent,
        kind: find(attributes, KIND).map(text).unwrap_or_default(),
        options: find(attributes, OPTIONS).unwrap_or_default().to_vec(),
    })
}
