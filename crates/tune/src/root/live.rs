//! Settings that only system calls tell, of the host that this runs on.
//!
//! The text of queueing disciplines: `mq(fq_codel*4)` is what the kernel made by itself (handle 0); `8001:mq(…)` is what
//! somebody put there, with its handle and, in brackets, its options in hexadecimal where it has any. In parentheses are
//! those below it in the order of their classes, `*N` for N that are the same.

use std::io;

use ringmain_sys::ethtool::{Channels, Coalesce, Device};
use ringmain_sys::qdisc::{self, Qdisc};
use ringmain_sys::{audit, nftables};

use super::key::{Ethtool, Fields, Key};

const ENOENT: i32 = 2;

pub(super) fn read(key: &Key) -> io::Result<String> {
    match key {
        Key::File(_) => unreachable!("files are read as files"),
        Key::Ethtool { interface, what } => ask(&Device::open(interface)?, *what),
        Key::Qdisc { interface } => written(&qdisc::list(interface)?),
        Key::Audit => {
            let status = audit::status()?;
            Ok(format!(
                "enabled={} daemon={} rules={} lost={}",
                status.enabled, status.daemon, status.rules, status.lost
            ))
        }
        Key::AuditNeverTask => Ok(presence(audit::status()?.never_task).into()),
        Key::Nftables => {
            let tables = nftables::tables()?;
            let words: Vec<String> = tables
                .iter()
                .map(|table| format!("{}/{}={}", table.family, table.name.replace(' ', "_"), table.used))
                .collect();
            Ok(words.join(" "))
        }
    }
}

pub(super) fn write(key: &Key, value: &str) -> io::Result<()> {
    match key {
        Key::Ethtool { interface, what } => tell(&Device::open(interface)?, *what, value),
        Key::Qdisc { interface } => put(interface, value),
        Key::AuditNeverTask => match value {
            "present" => audit::set_never_task(true),
            "absent" => audit::set_never_task(false),
            _ => Err(wrong("present or absent", value)),
        },
        Key::File(_) | Key::Audit | Key::Nftables => {
            Err(wrong("a setting that can be written", &key.to_string()))
        }
    }
}

fn ask(device: &Device, what: Ethtool) -> io::Result<String> {
    let switch = |on: bool| if on { "on" } else { "off" };
    Ok(match what {
        Ethtool::Driver => device.driver()?,
        Ethtool::Channels => {
            let Channels { rx, tx, combined, .. } = device.channels()?;
            format!("rx={rx} tx={tx} combined={combined}")
        }
        Ethtool::ChannelsMax => {
            let most = device.channels()?;
            format!(
                "rx={} tx={} combined={}",
                most.max_rx, most.max_tx, most.max_combined
            )
        }
        Ethtool::Rings => {
            let rings = device.rings()?;
            format!("rx={} tx={}", rings.rx, rings.tx)
        }
        Ethtool::RingsMax => {
            let rings = device.rings()?;
            format!("rx={} tx={}", rings.max_rx, rings.max_tx)
        }
        Ethtool::Coalesce => {
            let now = device.coalesce()?;
            format!(
                "adaptive-rx={} adaptive-tx={} rx-usecs={} rx-frames={} tx-usecs={} tx-frames={}",
                switch(now.adaptive_rx),
                switch(now.adaptive_tx),
                now.rx_us,
                now.rx_frames,
                now.tx_us,
                now.tx_frames
            )
        }
        Ethtool::Gro => switch(device.gro()?).into(),
        Ethtool::Indirection => {
            let queues: Vec<String> = device.indirection()?.iter().map(u32::to_string).collect();
            queues.join(" ")
        }
        Ethtool::Allowance => {
            let counters = device.counters(|name| name.contains("allowance"))?;
            let words: Vec<String> = counters
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            words.join(" ")
        }
    })
}

fn tell(device: &Device, what: Ethtool, value: &str) -> io::Result<()> {
    let fields = Fields::parse(value);
    let number = |name: &str| {
        fields
            .number(name)
            .ok_or_else(|| wrong(&format!("{name}=N"), value))
    };
    match what {
        Ethtool::Channels => device.set_channels(number("rx")?, number("tx")?, number("combined")?),
        Ethtool::Rings => device.set_rings(number("rx")?, number("tx")?),
        Ethtool::Coalesce => device.set_coalesce(&Coalesce {
            rx_us: number("rx-usecs")?,
            rx_frames: number("rx-frames")?,
            tx_us: number("tx-usecs")?,
            tx_frames: number("tx-frames")?,
            adaptive_rx: fields.is_on("adaptive-rx"),
            adaptive_tx: fields.is_on("adaptive-tx"),
        }),
        Ethtool::Gro => match value {
            "on" => device.set_gro(true),
            "off" => device.set_gro(false),
            _ => Err(wrong("on or off", value)),
        },
        Ethtool::Indirection => {
            let queues = value.split_ascii_whitespace().map(str::parse);
            let queues: Result<Vec<u32>, _> = queues.collect();
            device.set_indirection(&queues.map_err(|_| wrong("numbers of queues", value))?)
        }
        Ethtool::Driver | Ethtool::ChannelsMax | Ethtool::RingsMax | Ethtool::Allowance => {
            Err(wrong("a setting that can be written", value))
        }
    }
}

fn presence(present: bool) -> &'static str {
    if present { "present" } else { "absent" }
}

/// The disciplines as text.
pub(super) fn written(all: &[Qdisc]) -> io::Result<String> {
    let Some((root, below)) = all.split_first().filter(|(first, _)| first.parent == qdisc::ROOT) else {
        return Ok("none".into());
    };
    let one = |qdisc: &Qdisc| {
        let handle = match qdisc.handle >> 16 {
            0 => return qdisc.kind.clone(),
            major => format!("{major:x}:"),
        };
        // The band map of pfifo_fast and the like are told, but what they are made from is nothing.
        let options = match qdisc.options.as_slice() {
            [] => String::new(),
            _ if matches!(qdisc.kind.as_str(), "mq" | "pfifo_fast" | "noqueue") => String::new(),
            options => format!(
                "[{}]",
                options
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>()
            ),
        };
        format!("{handle}{}{options}", qdisc.kind)
    };
    if !below.is_empty() && root.kind != "mq" {
        // A tree of classes: their order and filters are more than this text can hold.
        return Ok(format!("tree:{}", root.kind));
    }
    let mut parts: Vec<(String, usize)> = Vec::new();
    for text in below.iter().map(one) {
        match parts.last_mut() {
            Some((last, count)) if *last == text => *count += 1,
            _ => parts.push((text, 1)),
        }
    }
    let below: Vec<String> = parts
        .into_iter()
        .map(|(text, count)| {
            if count == 1 {
                text
            } else {
                format!("{text}*{count}")
            }
        })
        .collect();
    if below.is_empty() {
        return Ok(one(root));
    }
    Ok(format!("{}({})", one(root), below.join(",")))
}

/// Reads the text into disciplines; those below with classes from 1 on.
pub(super) fn parsed(text: &str) -> Option<Vec<Qdisc>> {
    let (root, below) = match text.split_once('(') {
        Some((root, rest)) => (root, rest.strip_suffix(')')?),
        None => (text, ""),
    };
    let mut all = vec![one_parsed(root, qdisc::ROOT)?];
    let major = all[0].handle & 0xffff_0000;
    let mut class = 0;
    for part in below.split(',').filter(|part| !part.is_empty()) {
        let (text, count) = match part.rsplit_once('*') {
            Some((text, count)) => (text, count.parse().ok().filter(|n| *n <= crate::limits::QUEUES)?),
            None => (part, 1),
        };
        for _ in 0..count {
            class += 1;
            all.push(one_parsed(text, major | class)?);
        }
    }
    Some(all)
}

fn one_parsed(text: &str, parent: u32) -> Option<Qdisc> {
    let (text, options) = match text.split_once('[') {
        Some((text, hex)) => (text, bytes(hex.strip_suffix(']')?)?),
        None => (text, Vec::new()),
    };
    let (handle, kind) = match text.split_once(':') {
        Some((major, kind)) => (
            u32::from_str_radix(major, 16).ok().filter(|m| *m <= 0xffff)? << 16,
            kind,
        ),
        None => (0, text),
    };
    let known = !kind.is_empty()
        && kind
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    known.then(|| Qdisc {
        handle,
        parent,
        kind: kind.to_owned(),
        options,
    })
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().as_chunks::<2>();
    if !digits.1.is_empty() || !hex.is_ascii() {
        return None;
    }
    digits
        .0
        .iter()
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// Has the interface the disciplines that the text says.
fn put(interface: &str, text: &str) -> io::Result<()> {
    let all = parsed(text).ok_or_else(|| wrong("queueing disciplines such as mq(fq_codel*4)", text))?;
    let (root, below) = all.split_first().ok_or_else(|| wrong("a discipline", text))?;
    if root.handle == 0 {
        // What the kernel makes by itself. It is only made anew where another one was: of `default_qdisc` as it is now.
        let other = Qdisc {
            handle: 0,
            parent: qdisc::ROOT,
            kind: if below.is_empty() { "pfifo_fast" } else { "mq" }.into(),
            options: Vec::new(),
        };
        let current = qdisc::list(interface)?;
        if current.first().is_some_and(|first| first.handle == 0) {
            qdisc::replace(interface, &other)?;
        }
        return match qdisc::delete_root(interface) {
            Err(error) if error.raw_os_error() == Some(ENOENT) => Ok(()),
            done => done,
        };
    }
    qdisc::replace(interface, root)?;
    for one in below.iter().filter(|one| one.handle != 0) {
        qdisc::replace(interface, one)?;
    }
    Ok(())
}

fn wrong(expected: &str, found: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("expected {expected}; found `{found}`"),
    )
}
