//! Dependencies without duplicates, as drivers of graphs want them.

use smallvec::SmallVec;

/// Keeps the first of equal values: the driver takes each once.
pub fn once_each<T: Copy + Ord>(values: SmallVec<[T; 1]>) -> SmallVec<[T; 1]> {
    if values.len() <= 1 {
        return values;
    }
    let mut indexed: SmallVec<[(T, usize); 8]> = values.into_iter().zip(0..).collect();
    indexed.sort_unstable();
    indexed.dedup_by_key(|(value, _)| *value);
    indexed.sort_unstable_by_key(|&(_, index)| index);
    indexed.into_iter().map(|(value, _)| value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_values_keeps_its_place() {
        let once = |values: &[u32]| once_each(SmallVec::from_slice(values)).to_vec();
        assert_eq!(once(&[3, 1, 3, 2, 1]), [3, 1, 2]);
        assert_eq!(once(&[7]), [7]);
        assert_eq!(once(&[]), []);
    }
}
