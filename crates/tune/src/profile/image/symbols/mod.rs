//! The symbols of an image: which function is at an address.
//!
//! Names stay as they are in the file; knows nothing of how they are shown.

#[cfg(test)]
mod tests;

use object::{Object, ObjectSymbol, SymbolKind};

use super::Elf;
use crate::profile::limits::SYMBOLS;

/// Functions by their addresses.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    functions: Vec<Function>,
    /// All names, one after the other.
    names: String,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    /// Zero if the file does not say: hand-written assembly.
    length: u64,
    /// Where its name is.
    name: (u32, u32),
    /// Of several at one address the one that most would name.
    rank: u8,
}

impl Symbols {
    /// Adds what the file has, of both of its tables.
    pub(super) fn add(&mut self, elf: &Elf<'_>) {
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            let indirect = matches!(symbol.flags(), object::SymbolFlags::Elf { st_info, .. } if st_info.0 & 0xf == GNU_IFUNC);
            let function = symbol.kind() == SymbolKind::Text || indirect;
            if !function || !symbol.is_definition() || symbol.address() == 0 {
                continue;
            }
            let Ok(name) = symbol.name() else { continue };
            let rank =
                u8::from(symbol.is_global()) + u8::from(!name.starts_with('_')) + u8::from(symbol.size() > 0);
            self.insert(name, symbol.address(), symbol.size(), rank);
        }
    }

    fn insert(&mut self, name: &str, start: u64, length: u64, rank: u8) {
        let at = u32::try_from(self.names.len());
        let (Ok(at), Ok(name_length)) = (at, u32::try_from(name.len())) else {
            return;
        };
        if name.is_empty() || self.functions.len() >= SYMBOLS {
            return;
        }
        self.names.push_str(name);
        self.functions.push(Function {
            start,
            length,
            name: (at, name_length),
            rank,
        });
    }

    /// Puts them in their order, when all have been added.
    pub(super) fn finish(&mut self) {
        self.functions
            .sort_by_key(|function| (function.start, std::cmp::Reverse(function.rank)));
        self.functions.dedup_by_key(|function| function.start);
    }

    /// The name of the function at this address.
    pub(super) fn find(&self, address: u64) -> Option<&str> {
        let behind = self
            .functions
            .partition_point(|function| function.start <= address);
        // One that ends early may lie within another: a part of it that was given a name.
        let near = (0..behind).rev().take(NESTED);
        let holds = |at: &usize| {
            let function = &self.functions[*at];
            let next = self.functions.get(at + 1).map_or(u64::MAX, |next| next.start);
            let end = match function.length {
                0 => next.min(function.start.saturating_add(UNSIZED)),
                length => function.start.saturating_add(length),
            };
            address < end
        };
        let function = &self.functions[near.into_iter().find(holds)?];
        let (at, length) = (function.name.0 as usize, function.name.1 as usize);
        self.names.get(at..at + length)
    }
}

/// `STT_GNU_IFUNC`: a function that is chosen when the program begins, such as `memcpy`.
const GNU_IFUNC: u8 = 10;

/// How many symbols before an address are looked at.
const NESTED: usize = 4;

/// A function of unknown length ends at the next one, and after so many bytes.
const UNSIZED: u64 = 4096;
