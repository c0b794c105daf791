//! Noticing that work has ended, and waking the tasks that wait for it.

pub(crate) mod clock;
pub(crate) mod estimate;
pub(crate) mod latch;
pub(crate) mod pending;
pub(crate) mod reactor;
pub(crate) mod spawn;
pub(crate) mod spin_budget;
pub(crate) mod submitter;
pub(crate) mod tuning;
pub(crate) mod turn;
pub(crate) mod wake_policy;
pub(crate) mod wakers;
