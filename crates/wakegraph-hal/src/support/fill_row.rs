//! Fills in the form that drivers of GPUs take: equal elements of 1, 2 or 4 bytes in consecutive memory.

use super::transfer::fill_element;

/// Elements to set in consecutive memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillRow {
    /// First byte.
    pub address: u64,
    /// The value of each element.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u32,
    /// Elements.
    pub count: usize,
}

impl FillRow {
    /// A fill that the driver can do: of a pattern that repeats every 1, 2 or 4 bytes, to which the
    /// memory is aligned.
    pub fn of(address: u64, len: usize, pattern: &[u8]) -> Option<Self> {
        let element = fill_element(pattern, address, len, 4)?;
        let value = match *element {
            [a] => u32::from(a),
            [a, b] => u32::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
            _ => return None,
        };
        Some(Self { address, value, element: element.len() as u32, count: len / element.len() })
    }

    /// The four bytes that repeat. The byte with index `i` is set at the addresses that leave a
    /// remainder of `i` when divided by 4.
    pub fn word(&self) -> u32 {
        match self.element {
            1 => self.value * 0x0101_0101,
            2 => self.value * 0x0001_0001,
            _ => self.value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_use_the_shortest_element() {
        let fill = |address, value, element, count| Some(FillRow { address, value, element, count });
        assert_eq!(FillRow::of(1, 6, &[7, 7]), fill(1, 7, 1, 6));
        let short = u32::from(u16::from_ne_bytes([1, 2]));
        assert_eq!(FillRow::of(2, 8, &[1, 2, 1, 2]), fill(2, short, 2, 4));
        let word = u32::from_ne_bytes([1, 2, 3, 4]);
        assert_eq!(FillRow::of(4, 8, &[1, 2, 3, 4]), fill(4, word, 4, 2));
        assert_eq!(FillRow::of(2, 8, &[1, 2, 3, 4]), None, "not aligned");
        assert_eq!(FillRow::of(0, 16, &[1, 2, 3, 4, 5, 6, 7, 8]), None, "too long");
    }

    #[test]
    fn the_repeated_word_holds_the_byte_of_each_address() {
        for (address, pattern) in [(5, &[9u8][..]), (6, &[1, 2]), (8, &[1, 2, 3, 4]), (4, &[0xFF; 4])] {
            let len = 8;
            let word = FillRow::of(address, len, pattern).unwrap().word().to_le_bytes();
            let seen: Vec<u8> = (address..).take(len).map(|at| word[at as usize % 4]).collect();
            let expected: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
            assert_eq!(seen, expected);
        }
    }
}
