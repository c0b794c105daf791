//! Counts how often a schedule visits a queue, so that tests can bound the cost of a poll.

#[cfg(test)]
pub(super) use counted::Visits;
#[cfg(not(test))]
pub(super) use uncounted::Visits;

#[cfg(not(test))]
mod uncounted {
    #[derive(Clone, Copy, Debug, Default)]
    pub(in super::super) struct Visits(());

    impl Visits {
        pub(in super::super) fn count(self) {}
    }
}

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    #[derive(Debug, Default)]
    pub(in super::super) struct Visits(Cell<usize>);

    impl Visits {
        pub(in super::super) fn count(&self) {
            self.0.set(self.0.get() + 1);
        }

        /// The visits since the last call.
        pub(in super::super) fn take(&self) -> usize {
            self.0.take()
        }
    }
}
