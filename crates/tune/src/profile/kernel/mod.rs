//! The kernel's functions by their addresses, as `/proc/kallsyms` lists them; its modules and BPF programs with them.
//!
//! Who may not see addresses sees zeros there, which is told apart from a kernel that lists nothing.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;

use super::limits::{KALLSYMS_BYTES, KERNEL_TAIL};

/// The kernel's functions.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    /// Ascending.
    functions: Vec<(u64, Box<str>)>,
    /// There are names, and all addresses are zero.
    pub(super) hidden: bool,
}

impl Kernel {
    /// Those of this host's kernel.
    pub(super) fn read() -> Kernel {
        let mut text = String::new();
        let file = File::open("/proc/kallsyms");
        let read = file.and_then(|file| file.take(KALLSYMS_BYTES).read_to_string(&mut text));
        match read {
            Ok(_) => Kernel::parse(&text),
            Err(_) => Kernel {
                functions: Vec::new(),
                hidden: true,
            },
        }
    }

    /// Lines as `ffffffff81000000 T _stext` and `ffffffffc0a01000 t nft_do_chain [nf_tables]`.
    fn parse(text: &str) -> Kernel {
        let mut functions: Vec<(u64, Box<str>)> = Vec::new();
        let mut listed = 0;
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            listed += 1;
            if !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            if let Ok(address @ 1..) = u64::from_str_radix(address, 16) {
                functions.push((address, name.into()));
            }
        }
        functions.sort_by_key(|(address, _)| *address);
        Kernel {
            hidden: functions.is_empty() && listed > 0,
            functions,
        }
    }

    /// The function at this address.
    pub(super) fn find(&self, address: u64) -> Option<&str> {
        let behind = self.functions.partition_point(|(start, _)| *start <= address);
        let start = self.functions.get(behind.checked_sub(1)?)?.0;
        if behind == self.functions.len() && address - start > KERNEL_TAIL {
            return None;
        }
        // Of several names at one address the first is the one that the sources know it by, but for marks of sections.
        let first = self.functions.partition_point(|(other, _)| *other < start);
        let names = self.functions[first..behind].iter().map(|(_, name)| &**name);
        let mark =
            |name: &&str| name.starts_with("__pfx_") || matches!(*name, "_stext" | "_text" | "_stext_offset");
        names
            .clone()
            .find(|name| !mark(name))
            .or_else(|| names.clone().next())
    }
}
