//! Keeps what an update has replaced until the device no longer uses it.

/// Values that enqueued work may still use, each with a fence that is over when that work is.
#[derive(Debug)]
pub struct Retired<F, T>(Vec<(F, T)>);

impl<F, T> Default for Retired<F, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F, T> Retired<F, T> {
    /// Keeps the value until the fence is over.
    pub fn keep(&mut self, fence: F, value: T) {
        self.0.push((fence, value));
    }

    /// Drops the values whose fence is over.
    #[inline]
    pub fn purge(&mut self, is_over: impl Fn(&F) -> bool) {
        // Mostly there are none.
        if self.0.is_empty() {
            return;
        }
        self.0.retain(|(fence, _)| !is_over(fence));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn values_go_when_their_fence_is_over() {
        let values = [1, 2, 3].map(Arc::new);
        let mut retired = Retired::default();
        values.iter().for_each(|value| retired.keep(**value, Arc::clone(value)));
        retired.purge(|&fence| fence != 2);
        assert_eq!(values.each_ref().map(Arc::strong_count), [1, 2, 1]);
        retired.purge(|_| true);
        assert_eq!(Arc::strong_count(&values[1]), 1);
    }
}
