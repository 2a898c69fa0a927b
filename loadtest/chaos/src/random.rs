//! Numbers that follow from a seed alone, on every machine and with every release: what a seed
//! injects must not change with a dependency.

/// A stream of numbers. SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): small, and good enough to
/// deal cards.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed for this purpose: streams of different purposes share nothing.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut state = seed;
        for byte in purpose.bytes() {
            state = mixed(state.wrapping_add(u64::from(byte)));
        }
        Self(state)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number from `low` to `high`, both included. `low` when the range is empty.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        let width = high.saturating_sub(low).saturating_add(1);
        low + self.draw() % width
    }

    /// Puts a slice into a random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.within(0, last as u64);
            items.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }
}

fn mixed(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut random = Random::new(1, "");
        let first: Vec<_> = (0..3).map(|_| random.draw()).collect();
        // The published test vector of SplitMix64 with seed 1.
        let published = [
            10_451_216_379_200_822_465,
            13_757_245_211_066_428_519,
            17_911_839_290_282_890_590,
        ];
        assert_eq!(first, published);
        assert_ne!(Random::new(1, "a").draw(), Random::new(1, "b").draw());
    }

    #[test]
    fn bounds_are_reached_and_kept() {
        let mut random = Random::new(7, "bounds");
        let drawn: std::collections::BTreeSet<_> = (0..1000).map(|_| random.within(3, 6)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(random.within(5, 5), 5);
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut items: Vec<u64> = (0..50).collect();
        Random::new(3, "shuffle").shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
