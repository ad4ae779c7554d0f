//! Colours: blue for user code, red for the kernel, grey for what is not known; of a difference orange for more, green for less.
//!
//! A function has the same shade in every graph, by its name, so that two graphs can be compared by eye.

use crate::profile::folded::{Side, shown};

/// A colour by hue (degrees), saturation and lightness (percent).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Colour {
    pub(super) hue: u16,
    pub(super) saturation: u8,
    pub(super) lightness: u8,
}

const fn colour(hue: u16, saturation: u8, lightness: u8) -> Colour {
    Colour {
        hue,
        saturation,
        lightness,
    }
}

/// What the legend shows for a side.
pub(super) fn sample(side: Side) -> Colour {
    match side {
        Side::User => colour(212, 75, 68),
        Side::Kernel => colour(4, 75, 68),
        Side::Other => colour(220, 8, 78),
    }
}

/// The box of everything.
pub(super) fn of_all() -> Colour {
    colour(220, 8, 88)
}

/// A frame's colour.
pub(in super::super) fn of_frame(frame: &str, depth: usize) -> Colour {
    let frame = shown(frame);
    if depth <= 1 {
        return colour(220, 10, 84);
    }
    // Three shades that do not depend on each other, from one number.
    let hash = hash(frame.name);
    let shade = |shift: u32, steps: u64| u8::try_from((hash >> shift) % steps).unwrap_or(0);
    match frame.side {
        Side::Kernel => colour(u16::from(shade(0, 14)), 66 + shade(16, 18), 64 + shade(32, 12)),
        // What was inlined is part of the function beneath it.
        Side::User if frame.inlined => colour(
            200 + u16::from(shade(0, 18)),
            50 + shade(16, 14),
            78 + shade(32, 8),
        ),
        Side::User => colour(
            204 + u16::from(shade(0, 18)),
            66 + shade(16, 18),
            62 + shade(32, 12),
        ),
        Side::Other => colour(220, 8, 76 + shade(32, 6)),
    }
}

/// The colour of a change of a share: `change` from -1 (gone) to 1 (all).
pub(in super::super) fn changed(change: f64) -> Colour {
    // A change of a tenth of all time is as strong as it gets; a thousandth is none.
    let strength = (change.abs() / 0.1).sqrt().min(1.0);
    let lightness = 94 - (strength * 36.0) as u8;
    match change {
        small if small.abs() < 0.001 => colour(220, 8, 90),
        more if more > 0.0 => colour(28, 90, lightness),
        _ => colour(150, 50, lightness),
    }
}

/// FNV-1a: the same on every machine, in every version.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
