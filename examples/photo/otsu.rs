//! The threshold that tells edges from the rest.

use wakegraph::{HostMut, HostRef};

/// Host task: puts into `level` the threshold for the image that `histogram` is of.
pub(crate) async fn choose_level((histogram, mut level): (HostRef<u32>, HostMut<u8>)) {
    level[0] = otsu(&histogram);
}

/// Parts the values of a histogram in two, up to the result and above it, so that the variance
/// between the two classes is largest.
///
/// Source: N. Otsu, "A Threshold Selection Method from Gray-Level Histograms", IEEE Transactions on
/// Systems, Man, and Cybernetics 9 (1), 1979.
fn otsu(histogram: &[u32]) -> u8 {
    let bins = || histogram.iter().enumerate().map(|(value, &count)| (value as f64, f64::from(count)));
    let (all, all_sum) = bins().fold((0.0, 0.0), |(n, sum), (value, count)| (n + count, sum + value * count));

    let (mut best, mut best_variance) = (0, 0.0);
    let (mut below, mut below_sum) = (0.0, 0.0);
    for (value, count) in bins() {
        below += count;
        below_sum += value * count;
        let above = all - below;
        if below == 0.0 || above == 0.0 {
            continue;
        }
        let distance = below_sum / below - (all_sum - below_sum) / above;
        let variance = below * above * distance.powi(2);
        if variance > best_variance {
            (best, best_variance) = (value as u8, variance);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_two_humps_and_leaves_one_value_whole() {
        let mut histogram = [0; 256];
        assert_eq!(otsu(&histogram), 0);
        histogram[9..12].copy_from_slice(&[4, 8, 4]);
        histogram[199..202].copy_from_slice(&[1, 2, 1]);
        assert_eq!(otsu(&histogram), 11);
        histogram.fill(0);
        histogram[7] = 100;
        assert_eq!(otsu(&histogram), 0);
    }
}
