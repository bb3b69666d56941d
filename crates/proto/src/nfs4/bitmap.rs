//! `bitmap4`: a set of small numbers, used for attributes and operations (RFC 8881 section 3.2).

use xdr::{Decode, Decoder, Encode, Encoder, Error};

/// The most words of a bitmap that are decoded.
const MAX_DECODED_WORDS: usize = 1024;
/// Represents every number that is too large for a [`Bitmap4`]; none of them is defined.
const BEYOND: u32 = 255;

/// The words of a bitmap that are kept. Three are in use; the meaning of further ones isn't defined.
pub const MAX_BITMAP_WORDS: usize = 8;

/// `bitmap4`: bit `n % 32` of word `n / 32` stands for the number `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Bitmap4 {
    words: [u32; MAX_BITMAP_WORDS],
}

impl Bitmap4 {
    /// The empty set.
    pub const EMPTY: Self = Self { words: [0; MAX_BITMAP_WORDS] };

    /// The set of `numbers`, each below 256.
    #[must_use]
    pub const fn of(numbers: &[u32]) -> Self {
        let mut set = Self::EMPTY;
        let mut at = 0;
        while at < numbers.len() {
            set.words[(numbers[at] / 32) as usize] |= 1 << (numbers[at] % 32);
            at += 1;
        }
        set
    }

    /// Whether the set contains `number`.
    #[must_use]
    pub const fn contains(&self, number: u32) -> bool {
        let word = (number / 32) as usize;
        word < MAX_BITMAP_WORDS && self.words[word] & (1 << (number % 32)) != 0
    }

    /// Adds `number`, which is below 256.
    pub const fn insert(&mut self, number: u32) {
        self.words[(number / 32) as usize] |= 1 << (number % 32);
    }

    /// Removes `number`.
    pub const fn remove(&mut self, number: u32) {
        self.words[(number / 32) as usize] &= !(1 << (number % 32));
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The intersection.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self { words: std::array::from_fn(|at| self.words[at] & other.words[at]) }
    }

    /// The difference.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self { words: std::array::from_fn(|at| self.words[at] & !other.words[at]) }
    }

    /// The numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().zip(0_u32..).flat_map(|(word, index)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                (bit < 32).then(|| {
                    rest &= rest - 1;
                    index * 32 + bit
                })
            })
        })
    }
}

impl Encode for Bitmap4 {
    fn encode(&self, to: &mut Encoder) {
        let length = MAX_BITMAP_WORDS - self.words.iter().rev().take_while(|word| **word == 0).count();
        to.length(length);
        self.words[..length].iter().for_each(|word| to.u32(*word));
    }
}

impl<'a> Decode<'a> for Bitmap4 {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let length = from.length(MAX_DECODED_WORDS)?;
        let mut set = Self::EMPTY;
        for at in 0..length {
            let bits = from.u32()?;
            match set.words.get_mut(at) {
                Some(word) => *word |= bits,
                None if bits != 0 => set.insert(BEYOND),
                None => {}
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_was_put_in() {
        let mut set = Bitmap4::of(&[0, 31, 32, 82, 255]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 31, 32, 82, 255]);
        set.remove(255);
        set.insert(1);
        assert!(set.contains(1) && !set.contains(255) && !set.contains(4000));
        let other = Bitmap4::of(&[1, 2]);
        assert_eq!(set.and(&other), Bitmap4::of(&[1]));
        assert_eq!(set.without(&other), Bitmap4::of(&[0, 31, 32, 82]));
        let mut to = Encoder::new();
        to.put(&Bitmap4::of(&[1, 33]));
        assert_eq!(to.as_slice(), [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2]);
    }
}
