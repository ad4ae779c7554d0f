//! Names of functions as they are shown: as they were written in Rust or C++, bounded, and without what means something in a file of
//! folded stacks.

#[cfg(test)]
mod tests;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

use super::limits::NAME;

/// What stands where no name is known.
pub(super) const UNKNOWN: &str = "[unknown]";

/// Mark of a frame in the kernel, at the end of its name; as other tools write it.
pub(super) const KERNEL: &str = "_[k]";

/// Mark of a frame that was inlined into the one before it.
pub(super) const INLINED: &str = "_[i]";

/// The depth of a C++ name that is taken apart; deeper ones are shown as they are.
const DEPTH: u32 = 96;

/// A symbol's name as it was written.
pub(super) fn shown(symbol: &str) -> String {
    // What linkers add to tell versions apart: `memcpy@@GLIBC_2.14`.
    let symbol = symbol.split('@').next().unwrap_or(symbol);
    plain(
        &rust(symbol)
            .or_else(|| cpp(symbol))
            .unwrap_or_else(|| symbol.to_owned()),
    )
}

fn rust(symbol: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    // Without the hash at its end, which differs from build to build.
    Some(format!("{name:#}"))
}

fn cpp(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_Z") && !symbol.starts_with("__Z") {
        return None;
    }
    let parse = ParseOptions::default().recursion_limit(DEPTH);
    let options = DemangleOptions::new()
        .no_params()
        .no_return_type()
        .recursion_limit(DEPTH);
    let name = Symbol::new_with_options(symbol, &parse).ok()?;
    name.demangle_with_options(&options).ok()
}

/// A name that can stand in a line of folded stacks: bounded, on one line, without `;`.
pub(super) fn plain(name: &str) -> String {
    let mut out = String::with_capacity(name.len().min(NAME));
    for (at, character) in name.chars().enumerate() {
        if at >= NAME {
            out.push('…');
            break;
        }
        out.push(match character {
            ';' => ':',
            control if control.is_control() => '?',
            other => other,
        });
    }
    if out.is_empty() { UNKNOWN.to_owned() } else { out }
}
