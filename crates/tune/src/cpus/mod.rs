//! Sets of CPUs in the kernel's two forms: lists (`0-3,8`) and masks (`ff,00000001`).

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use ringmain_sys::cpu;

use crate::limits;

/// A set of CPUs, shown as a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(BTreeSet<usize>);

impl Cpus {
    /// Reads a list; `None` for anything else.
    #[must_use]
    pub fn list(text: &str) -> Option<Cpus> {
        let cpus = cpu::parse_list(text)?;
        let few = cpus.iter().all(|cpu| *cpu < limits::CPUS);
        few.then(|| cpus.into_iter().collect())
    }

    /// Reads a mask; `None` for anything else.
    #[must_use]
    pub fn mask(text: &str) -> Option<Cpus> {
        let digits: String = text.trim().chars().filter(|c| *c != ',').collect();
        if digits.is_empty() || digits.len() * 4 > limits::CPUS {
            return None;
        }
        let mut cpus = BTreeSet::new();
        for (place, digit) in digits.chars().rev().enumerate() {
            let digit = digit.to_digit(16)?;
            cpus.extend(
                (0..4)
                    .filter(|bit| digit & (1 << bit) != 0)
                    .map(|bit| place * 4 + bit),
            );
        }
        Some(Cpus(cpus))
    }

    /// The mask, in groups of eight digits as the kernel takes it.
    #[must_use]
    pub fn to_mask(&self) -> String {
        let groups = self.0.last().map_or(1, |last| last / 32 + 1);
        let mut words = vec![0u32; groups];
        for cpu in &self.0 {
            words[cpu / 32] |= 1 << (cpu % 32);
        }
        let mut out = String::new();
        for (place, word) in words.iter().rev().enumerate() {
            match place {
                0 => out.push_str(&format!("{word:x}")),
                _ => out.push_str(&format!(",{word:08x}")),
            }
        }
        out
    }

    /// In ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one is among them.
    #[must_use]
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// The one, if there is exactly one.
    #[must_use]
    pub fn only(&self) -> Option<usize> {
        self.0.first().copied().filter(|_| self.0.len() == 1)
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(&self, other: &Cpus) -> Cpus {
        self.0.intersection(&other.0).copied().collect()
    }

    /// Those that are not in the other.
    #[must_use]
    pub fn without(&self, other: &Cpus) -> Cpus {
        self.0.difference(&other.0).copied().collect()
    }
}

impl FromIterator<usize> for Cpus {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Cpus {
        Cpus(cpus.into_iter().collect())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}
