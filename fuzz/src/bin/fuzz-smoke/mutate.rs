//! Seeded random changes to inputs. Knows nothing of targets.

/// SplitMix64: small, and the same on every machine.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; zero if that is zero.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

/// Longest input that grows out of mutations, bytes.
const LIMIT: usize = 4096;

/// One input of `corpus` (not empty) after a few changes; now and then plain noise.
pub(crate) fn input(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if random.below(16) == 0 {
        return (0..random.below(1024)).map(|_| random.byte()).collect();
    }
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(8) {
        change(&mut input, corpus, random);
    }
    input.truncate(LIMIT);
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let length = random.below(8).min(input.len() - at);
    match random.below(7) {
        0 => input
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte ^= 1 << random.below(8)),
        1 => input
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte = random.byte()),
        2 => input.insert(at, random.byte()),
        3 => drop(input.drain(at..at + length)),
        4 => {
            let copy = input[at..at + length].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, copy);
        }
        5 => {
            let other = &corpus[random.below(corpus.len())];
            input.splice(at.., other[random.below(other.len() + 1)..].iter().copied());
        }
        _ => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len() + 1);
            let piece = &other[from..(from + random.below(16)).min(other.len())];
            input.splice(at..at, piece.iter().copied());
        }
    }
}
