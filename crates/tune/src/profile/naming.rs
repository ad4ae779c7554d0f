//! Addresses become names: each that was seen is looked up once, and stacks become lines.

use std::collections::BTreeMap;

use super::folded::Folded;
use super::image::Image;
use super::kernel::Kernel;
use super::names::{self, INLINED, KERNEL, UNKNOWN};
use super::recording::Recording;
use super::recording::spaces::Frame;

/// What stands for frames that are further out than what is known.
const TRUNCATED: &str = "[truncated]";

/// Stacks with names.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) folded: Folded,
    /// The kernel was seen, and its functions have no names.
    pub(super) kernel_hidden: bool,
}

/// Names all stacks.
pub(super) fn fold(recording: &mut Recording) -> Named {
    let kernel = Kernel::read();
    let threads = threads(&recording.stacks.by_number);
    let images = &mut recording.spaces.images;
    let mut known: BTreeMap<Frame, String> = BTreeMap::new();
    let mut folded = Folded::default();
    let mut kernel_seen = false;
    let mut line = String::new();
    for (thread, frames, count) in recording.stacks.iter() {
        line.clear();
        line.push_str(&threads[thread]);
        for frame in frames.iter().rev() {
            kernel_seen |= matches!(frame, Frame::Kernel(_));
            let written = known
                .entry(*frame)
                .or_insert_with(|| written(*frame, images, &kernel));
            line.push(';');
            line.push_str(written);
        }
        folded.add(&line, count);
    }
    for (thread, count) in recording.stacks.others() {
        folded.add(&format!("{};[other stacks]", threads[thread]), count);
    }
    Named {
        folded,
        kernel_hidden: kernel_seen && kernel.hidden,
    }
}

/// A frame as it stands in a line; several where functions were inlined.
fn written(frame: Frame, images: &mut [Image], kernel: &Kernel) -> String {
    match frame {
        Frame::Kernel(address) => {
            let name = kernel
                .find(address)
                .map_or_else(|| UNKNOWN.to_owned(), names::plain);
            format!("{name}{KERNEL}")
        }
        Frame::User { image, address } => {
            let image = &mut images[image as usize];
            let functions = image.functions(address);
            if functions.is_empty() {
                return names::plain(&format!("[unknown in {}]", image.name));
            }
            let mark = |at| if at > 0 { INLINED } else { "" };
            let parts = functions.iter().enumerate();
            let parts: Vec<String> = parts.map(|(at, name)| format!("{name}{}", mark(at))).collect();
            parts.join(";")
        }
        Frame::Nowhere => UNKNOWN.to_owned(),
        Frame::Cut => TRUNCATED.to_owned(),
    }
}

/// Threads' names as they stand in lines: those of a pool, which differ by a number at their end, are one.
fn threads(names: &[String]) -> BTreeMap<String, String> {
    let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let mut of_stem: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        *of_stem.entry(stem(name)).or_default() += 1;
    }
    names
        .iter()
        .map(|name| {
            let stem = stem(name);
            let pool = of_stem[&stem] > 1 && !stem.is_empty();
            (name.clone(), if pool { format!("{stem}*") } else { name.clone() })
        })
        .collect()
}
