//! Whether a tick behind every launch is worth what it costs: as long as enqueues ask for it.

/// How often enqueues of one command-buffer ask for a tick.
#[derive(Debug)]
pub(super) struct Demand {
    /// Enqueues that asked since there was a tick last.
    asked: u32,
    /// Enqueues in a row that did not.
    unasked: u32,
    /// What `asked` has to reach.
    needed: u32,
}

/// What is asked for less often is not worth another instance.
const NEEDED: u32 = 4;

/// After so many enqueues that did not ask, nobody is expected to.
const PATIENCE: u32 = 64;

/// How much more often it has to be asked for after each time that it was in vain, so that the
/// instances made for it become few among the enqueues, whatever the user does.
const GROWTH: u32 = 8;

impl Default for Demand {
    fn default() -> Self {
        Self { asked: 0, unasked: 0, needed: NEEDED }
    }
}

impl Demand {
    /// An enqueue is next. Gives whether there should be a tick behind it.
    pub(super) fn next(&mut self, asked: bool, ticks: bool) -> bool {
        if asked {
            self.asked = self.asked.saturating_add(1);
            self.unasked = 0;
        } else {
            self.unasked = self.unasked.saturating_add(1);
        }
        if self.unasked >= PATIENCE {
            self.asked = 0;
        }
        match ticks {
            true => self.unasked < PATIENCE,
            false => asked && self.asked >= self.needed,
        }
    }

    /// The tick has been taken away, or could not be.
    pub(super) fn in_vain(&mut self) {
        *self = Self { asked: 0, unasked: 0, needed: self.needed.saturating_mul(GROWTH) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enqueues until there is a tick.
    fn asks(demand: &mut Demand) -> u32 {
        (1..).find(|_| demand.next(true, false)).unwrap()
    }

    #[test]
    fn a_few_asks_are_enough_and_each_disappointment_makes_it_more() {
        let mut demand = Demand::default();
        for expected in [NEEDED, NEEDED * GROWTH, NEEDED * GROWTH * GROWTH] {
            assert_eq!(asks(&mut demand), expected);
            demand.in_vain();
        }
    }

    #[test]
    fn what_nobody_asks_for_any_more_goes() {
        let mut demand = Demand::default();
        asks(&mut demand);
        for _ in 0..3 {
            assert!((1..PATIENCE).all(|_| demand.next(false, true)));
            assert!(demand.next(true, true));
        }
        assert!((1..PATIENCE).all(|_| demand.next(false, true)));
        assert!(!demand.next(false, true));
    }

    #[test]
    fn one_that_did_not_ask_gets_none_and_rare_asks_do_not_add_up() {
        let mut demand = Demand::default();
        for _ in 0..2 * NEEDED {
            assert!(!demand.next(true, false));
            assert!((0..PATIENCE).all(|_| !demand.next(false, false)));
        }
        assert!((1..NEEDED).all(|_| !demand.next(true, false)));
        assert!(!demand.next(false, false));
        assert!(demand.next(true, false));
    }
}
