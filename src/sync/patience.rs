//! Whether spinning pays, learned from how it went.

/// After a spin in vain, chances are let go; four times as many after each further one, half as
/// many after each success.
///
/// A spin saves a task switch where another core is about to deliver. On a busy machine the other
/// thread may be waiting for this very core, and no guess at durations tells the two apart: trying
/// does. A spin in vain costs more than a success saves, so it weighs more: spinning goes on where
/// about two in three pay.
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
        self.penalty =
            if found { self.penalty / 2 } else { self.penalty.saturating_mul(4).saturating_add(3) };
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
    fn backs_off_up_to_a_bound_and_forgives_step_by_step() {
        let mut patience = Patience::default();
        for expected in [0, 3, 15, 63, 255, 255] {
            assert_eq!(chances_until_spin(&mut patience), expected);
            patience.record(false);
        }
        for expected in [255, 127, 63, 31, 15, 7, 3, 1, 0, 0] {
            assert_eq!(chances_until_spin(&mut patience), expected);
            patience.record(true);
        }
    }

    #[test]
    fn goes_on_where_three_in_four_pay_and_rests_where_one_in_two_does() {
        let spins = |outcomes: &[bool]| {
            let mut patience = Patience::default();
            let mut outcomes = outcomes.iter().cycle();
            let mut spins = 0;
            for _ in 0..10_000 {
                if patience.take_chance() {
                    spins += 1;
                    patience.record(*outcomes.next().unwrap());
                }
            }
            spins
        };
        assert_eq!(spins(&[true]), 10_000);
        assert!(spins(&[true, true, true, false]) > 3_000);
        assert!(spins(&[true, false]) < 300);
    }
}
