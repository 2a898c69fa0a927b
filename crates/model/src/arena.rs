//! Values that are made once, kept for ever, and named by a number.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::OnceLock;

/// Values of one chunk.
const CHUNK: usize = 1 << 12;
/// The most chunks.
const CHUNKS: usize = 1 << 14;

type Chunk<V> = Box<[OnceLock<V>]>;

/// Gives each key a number, in the order of their coming, and keeps its value. Reading takes no
/// lock, so that the checker's threads do not wait for each other.
pub(crate) struct Arena<K, V> {
    numbers: Mutex<HashMap<K, u32>>,
    chunks: Box<[OnceLock<Chunk<V>>]>,
}

impl<K: Eq + Hash, V> Arena<K, V> {
    pub fn new() -> Self {
        Self {
            numbers: Mutex::default(),
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The number of the key; its value is made if it is new.
    pub fn intern(&self, key: K, make: impl FnOnce(u32) -> V) -> u32 {
        let mut numbers = self.numbers.lock();
        if let Some(number) = numbers.get(&key) {
            return *number;
        }
        let index = numbers.len();
        assert!(index < CHUNK * CHUNKS, "the model's bounds are too wide");
        let number = index as u32;
        let empty = || (0..CHUNK).map(|_| OnceLock::new()).collect();
        let chunk = self.chunks[index / CHUNK].get_or_init(empty);
        chunk[index % CHUNK].get_or_init(|| make(number));
        numbers.insert(key, number);
        number
    }

    /// The value of a number that was given here.
    pub fn get(&self, number: u32) -> &V {
        let index = number as usize;
        let chunk = self.chunks.get(index / CHUNK).and_then(OnceLock::get);
        match chunk.and_then(|chunk| chunk[index % CHUNK].get()) {
            Some(value) => value,
            None => unreachable!("number {number} was not given here"),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.numbers.lock().len()
    }
}
