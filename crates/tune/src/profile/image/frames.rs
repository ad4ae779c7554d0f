//! Whether code keeps frame pointers, by what its unwinding tables say of where frames are found.
//!
//! A function that keeps one has its frame found by that register; one that does not, by the stack pointer.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Register, UnwindContext, UnwindSection as _,
};

use super::Unwinding;

/// The register that a frame pointer is in, by DWARF's numbers.
const FRAME_POINTER: Register = if cfg!(target_arch = "aarch64") {
    Register(29)
} else {
    Register(6)
};

/// Functions that are looked at.
const LOOKED_AT: usize = 4096;

/// So many of a hundred functions must keep one: one that does not hides its caller.
const MOST: usize = 90;

/// Whether most functions that call others keep one; `None` if there is no table, or nothing in it that tells.
pub(super) fn kept(unwinding: &Unwinding) -> Option<bool> {
    let (range, bytes) = unwinding.eh_frame.as_ref()?;
    let table = EhFrame::new(bytes, LittleEndian);
    let mut bases = BaseAddresses::default().set_eh_frame(range.start);
    if let Some(text) = &unwinding.text {
        bases = bases.set_text(text.start);
    }
    if let Some(got) = &unwinding.got {
        bases = bases.set_got(got.start);
    }
    let (mut with, mut without) = (0, 0);
    let mut entries = table.entries(&bases);
    let mut context = UnwindContext::new();
    while let (Ok(Some(entry)), true) = (entries.next(), with + without < LOOKED_AT) {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(function) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        // Entries of the linkage table are no functions.
        let within = |text: &std::ops::Range<u64>| text.contains(&function.initial_address());
        if !unwinding.text.as_ref().is_none_or(within) {
            continue;
        }
        let Ok(mut rows) = function.rows(&table, &bases, &mut context) else {
            continue;
        };
        let (mut count, mut keeps) = (0, false);
        while let Ok(Some(row)) = rows.next_row() {
            count += 1;
            keeps |= matches!(row.cfa(), CfaRule::RegisterAndOffset { register, .. } if *register == FRAME_POINTER);
        }
        // One row is a function that moves nothing onto the stack: it needs no frame.
        if keeps {
            with += 1;
        } else if count > 1 {
            without += 1;
        }
    }
    (with + without > 0).then(|| with * 100 >= (with + without) * MOST)
}
