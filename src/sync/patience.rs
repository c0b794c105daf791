//! Whether spinning pays, learned from how it went.

/// After each spin in vain, twice as many chances to spin are let go as after the one before; one success forgives all.
///
/// A spin saves a task switch where another core is about to deliver. On a busy machine the other thread may be waiting
/// for this very core, and no guess at durations tells the two apart: trying does.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Chances let go after a spin in vain.
    penalty: u8,
    /// Chances still to let go.
    left: u8,
}

impl Patience {
    /// Whether to spin at this chance.
    pub(crate) fn take_chance(&mut self) -> bool {
        let spin = self.left == 0;
        self.left = self.left.saturating_sub(1);
        spin
    }

    /// Whether more than one chance will be let go: nobody needs to know yet how long to spin.
    pub(crate) fn is_resting(&self) -> bool {
        self.left > 1
    }

    /// A spin found what it waited for, or gave up.
    pub(crate) fn record(&mut self, found: bool) {
        self.penalty = if found { 0 } else { self.penalty.saturating_mul(2).saturating_add(1) };
        self.left = self.penalty;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chances_until_spin(patience: &mut Patience) -> u32 {
        (0..).take_while(|_| !patience.take_chance()).count() as u32
    }

    #[test]
    fn backs_off_up_to_a_bound_and_forgives_at_once() {
        let mut patience = Patience::default();
        for expected in [0, 1, 3, 7, 15, 31, 63, 127, 255, 255] {
            assert_eq!(chances_until_spin(&mut patience), expected);
            patience.record(false);
        }
        patience.record(true);
        for _ in 0..3 {
            assert_eq!(chances_until_spin(&mut patience), 0);
            patience.record(true);
        }
    }
}
