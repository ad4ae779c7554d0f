//! The simulation's random numbers: one seed, the same numbers on every machine.
//!
//! Owns the generator (xoshiro256**, seeded by splitmix64). Knows nothing of what it decides.

/// A seeded generator. Not for secrets.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: [u64; 4],
}

impl Random {
    /// A generator whose whole future follows from `seed`.
    pub(super) fn new(seed: u64) -> Random {
        let mut mix = seed;
        Random {
            state: std::array::from_fn(|_| split_mix(&mut mix)),
        }
    }

    /// The next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `limit`; zero if `limit` is zero.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // The bias of a 128-bit product is below 2^-32 for every limit used here.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// As [`Random::below`], for positions and lengths.
    pub(super) fn index(&mut self, limit: usize) -> usize {
        self.below(limit as u64) as usize
    }

    /// True in `chance` of 1,000 cases.
    pub(super) fn per_mille(&mut self, chance: u16) -> bool {
        chance > 0 && self.below(1000) < u64::from(chance)
    }

    /// Heads or tails.
    pub(super) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }
}

/// One step of splitmix64; also a good mixer of small numbers.
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
