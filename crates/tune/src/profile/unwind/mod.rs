//! A stack that was copied, taken apart by the tables that compilers write (`.eh_frame`), through framehop; where code has no table, by
//! frame pointers.
//!
//! Knows addresses and bytes; knows nothing of processes, files, or names.

#[cfg(test)]
mod tests;

use std::ops::Range;

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use ringmain_sys::perf::record::Copied;

use super::image::{Bytes, Unwinding};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as ArchCache, PtrAuthMask, UnwindRegsAarch64 as Registers, UnwinderAarch64 as Arch,
};
#[cfg(not(target_arch = "aarch64"))]
use framehop::x86_64::{CacheX86_64 as ArchCache, UnwindRegsX86_64 as Registers, UnwinderX86_64 as Arch};

/// Whether stacks of this machine's programs can be taken apart.
pub(super) const SUPPORTED: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// What is known of one process's code.
#[derive(Clone, Default)]
pub(super) struct Unwinder(Arch<Bytes>);

/// Rules that were looked up, of all processes.
#[derive(Default)]
pub(super) struct Cache(ArchCache);

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unwinder")
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cache")
    }
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At the stack's outermost function.
    Whole,
    /// Where no more of the stack was copied, or there were too many frames.
    Cut,
    /// Where the tables lead nowhere.
    Broken,
}

impl Unwinder {
    /// Code at these addresses, from a file whose own address 0 would be at `bias`.
    pub(super) fn add(&mut self, range: Range<u64>, bias: u64, unwinding: &Unwinding) {
        let section = |section: &Option<(Range<u64>, Bytes)>| {
            section
                .clone()
                .map_or((None, None), |(range, bytes)| (Some(range), Some(bytes)))
        };
        let (eh_frame_svma, eh_frame) = section(&unwinding.eh_frame);
        let (eh_frame_hdr_svma, eh_frame_hdr) = section(&unwinding.eh_frame_hdr);
        let sections = ExplicitModuleSectionInfo {
            text_svma: unwinding.text.clone(),
            got_svma: unwinding.got.clone(),
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            debug_frame: unwinding.debug_frame.clone(),
            ..ExplicitModuleSectionInfo::default()
        };
        self.0
            .add_module(Module::new(String::new(), range, bias, sections));
    }

    /// The code that begins at this address is gone.
    pub(super) fn remove(&mut self, start: u64) {
        self.0.remove_module(start);
    }

    /// The addresses by which the functions of a stack are looked up, the innermost first; at most `most`.
    pub(super) fn walk(
        &self,
        cache: &mut Cache,
        copied: &Copied<'_>,
        most: usize,
        out: &mut Vec<u64>,
    ) -> End {
        let mut beyond = false;
        let end = copied.sp.saturating_add(copied.stack.len() as u64);
        let mut read = |address: u64| {
            let at = address
                .checked_sub(copied.sp)
                .and_then(|at| usize::try_from(at).ok());
            let word = at.and_then(|at| copied.stack.get(at..)?.first_chunk::<8>());
            beyond |= word.is_none() && address >= end.saturating_sub(8) && address - end < FRAME_BYTES;
            word.map(|word| u64::from_ne_bytes(*word)).ok_or(())
        };
        let mut frames = self
            .0
            .iter_frames(copied.ip, self.registers(copied), &mut cache.0, &mut read);
        let ended = loop {
            match frames.next() {
                Ok(Some(_)) if out.len() >= most => break End::Cut,
                // A return address is behind its call, which may be another function's first byte.
                Ok(Some(FrameAddress::ReturnAddress(address))) => out.push(address.get() - 1),
                Ok(Some(FrameAddress::InstructionPointer(address))) => out.push(address),
                Ok(None) => break End::Whole,
                Err(_) => break End::Broken,
            }
        };
        match ended {
            End::Broken if beyond => End::Cut,
            other => other,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn registers(&self, copied: &Copied<'_>) -> Registers {
        // Return addresses may be signed in the bits above all code.
        let mask = PtrAuthMask::from_max_known_address(self.0.max_known_code_address());
        Registers::new_with_ptr_auth_mask(mask, copied.lr, copied.sp, copied.fp)
    }

    #[cfg(not(target_arch = "aarch64"))]
    #[expect(clippy::unused_self, reason = "other architectures' registers depend on it")]
    fn registers(&self, copied: &Copied<'_>) -> Registers {
        Registers::new(copied.ip, copied.sp, copied.fp)
    }
}

/// A word that is wanted from so near behind the copy belongs to the same stack: it is the copy that was too short.
const FRAME_BYTES: u64 = 1 << 20;
