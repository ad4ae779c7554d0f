//! Which tables the packet filter of this network namespace has (`nfnetlink`, `NFT_MSG_GETTABLE`). Only looks.

use std::io;

use crate::netlink::{Ask, Family, Netlink, find, text, u32_at};

/// `NFNL_SUBSYS_NFTABLES << 8`, with `NFT_MSG_GETTABLE` and `NFT_MSG_NEWTABLE`.
const GET_TABLE: u16 = 0x0a01;
const NEW_TABLE: u16 = 0x0a00;
const NAME: u16 = 1;
const USED: u16 = 3;
/// `nfgenmsg`.
const HEADER: usize = 4;

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What packets it is for: `ip`, `ip6`, `inet`, `arp`, `bridge`, `netdev`, or a number.
    pub family: String,
    /// Its name.
    pub name: String,
    /// Chains, sets and objects in it; a table without any does nothing.
    pub used: u32,
}

/// All tables.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN in this network namespace; `EINVAL` or `EOPNOTSUPP` in a kernel without nftables.
pub fn tables() -> io::Result<Vec<Table>> {
    let messages = Netlink::open(Family::Netfilter)?.request(GET_TABLE, Ask::Dump, &[0; HEADER])?;
    let table = |payload: &[u8]| {
        let attributes = payload.get(HEADER..)?;
        let used = find(attributes, USED).and_then(|value| u32_at(value, 0));
        Some(Table {
            family: family(payload[0]),
            name: text(find(attributes, NAME)?),
            used: used.map_or(0, u32::from_be),
        })
    };
    let tables = messages.iter().filter(|message| message.kind == NEW_TABLE);
    Ok(tables.filter_map(|message| table(&message.payload)).collect())
}

fn family(number: u8) -> String {
    match number {
        1 => "inet".into(),
        2 => "ip".into(),
        3 => "arp".into(),
        5 => "netdev".into(),
        7 => "bridge".into(),
        10 => "ip6".into(),
        other => other.to_string(),
    }
}
