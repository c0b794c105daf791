//! The order in which requests wait: by priority, then fairly by key, then by arrival.

use std::collections::{BTreeMap, HashMap};

use crate::types::Priority;

/// Requests that wait. Keys of the same priority take turns, so a key with many requests does not
/// hold back a key with few.
#[derive(Debug)]
pub(crate) struct FairQueue<V> {
    waiting: BTreeMap<Position, V>,
    /// Of each priority, the turn of the request that left the queue last.
    turns: [u64; 3],
    /// What is known of the keys that have requests in the queue.
    keys: HashMap<(Priority, u64), KeyState>,
    arrivals: u64,
}

/// A request's place in the queue. Positions are never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Position {
    priority: Priority,
    /// The round in which it has its turn; a key has one request per round.
    turn: u64,
    arrival: u64,
    key: u64,
}

#[derive(Debug, Default)]
struct KeyState {
    next_turn: u64,
    waiting: usize,
}

impl<V> Default for FairQueue<V> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), turns: [0; 3], keys: HashMap::new(), arrivals: 0 }
    }
}

impl<V> FairQueue<V> {
    pub(crate) fn push(&mut self, priority: Priority, key: u64, value: V) -> Position {
        let state = self.keys.entry((priority, key)).or_default();
        let turn = self.turns[priority as usize].max(state.next_turn);
        *state = KeyState { next_turn: turn + 1, waiting: state.waiting + 1 };
        let position = Position { priority, turn, arrival: self.arrivals, key };
        self.arrivals += 1;
        self.waiting.insert(position, value);
        position
    }

    /// The request whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<V> {
        let (position, value) = self.waiting.pop_first()?;
        self.turns[position.priority as usize] = position.turn;
        self.forget(position);
        Some(value)
    }

    /// The request that `pop` would return.
    pub(crate) fn peek(&self) -> Option<&V> {
        self.waiting.first_key_value().map(|(_, value)| value)
    }

    /// Takes a request out that is no longer interested. None if it has had its turn.
    pub(crate) fn remove(&mut self, position: Position) -> Option<V> {
        let value = self.waiting.remove(&position)?;
        self.forget(position);
        Some(value)
    }

    /// All requests, in the order in which they would leave.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> {
        self.waiting.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn forget(&mut self, position: Position) {
        let of = (position.priority, position.key);
        if let Some(state) = self.keys.get_mut(&of) {
            state.waiting -= 1;
            if state.waiting == 0 {
                self.keys.remove(&of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut FairQueue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn one_key_is_first_in_first_out() {
        let mut queue = FairQueue::default();
        for value in ["a", "b", "c"] {
            queue.push(Priority::Normal, 0, value);
        }
        assert_eq!(drain(&mut queue), ["a", "b", "c"]);
    }

    #[test]
    fn urgent_requests_go_first() {
        let mut queue = FairQueue::default();
        queue.push(Priority::Low, 0, "low");
        queue.push(Priority::Normal, 0, "normal");
        queue.push(Priority::High, 0, "high");
        assert_eq!(drain(&mut queue), ["high", "normal", "low"]);
    }

    #[test]
    fn keys_take_turns() {
        let mut queue = FairQueue::default();
        for value in ["a1", "a2", "a3"] {
            queue.push(Priority::Normal, 1, value);
        }
        queue.push(Priority::Normal, 2, "b1");
        queue.push(Priority::Normal, 2, "b2");
        assert_eq!(drain(&mut queue), ["a1", "b1", "a2", "b2", "a3"]);
    }

    #[test]
    fn a_late_key_does_not_wait_behind_a_backlog() {
        let mut queue = FairQueue::default();
        for value in ["a1", "a2", "a3", "a4"] {
            queue.push(Priority::Normal, 1, value);
        }
        assert_eq!((queue.pop(), queue.pop()), (Some("a1"), Some("a2")));
        queue.push(Priority::Normal, 2, "b1");
        assert_eq!(drain(&mut queue), ["b1", "a3", "a4"]);
    }

    #[test]
    fn removed_requests_are_never_popped() {
        let mut queue = FairQueue::default();
        let positions = ["a", "b", "c"].map(|value| queue.push(Priority::Normal, 1, value));
        assert_eq!(queue.remove(positions[1]), Some("b"));
        assert_eq!(queue.remove(positions[1]), None);
        assert_eq!((queue.len(), queue.peek()), (2, Some(&"a")));
        assert_eq!(drain(&mut queue), ["a", "c"]);
        assert!(queue.keys.is_empty());
    }
}
