//! The order in which requests wait: by priority, then fairly by key, then by arrival. Requests of a low
//! priority that are passed over again and again have a turn in between.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use wakegraph_hal::Priority;

/// Turns of more urgent requests before one that is less urgent has its turn.
const PASSED_OVER: u32 = 32;

/// Requests that wait. Keys of the same priority take turns, so a key with many requests does not
/// hold back a key with few.
#[derive(Debug)]
pub(crate) struct FairQueue<V> {
    /// Requests that had their turn in vain. They have the next ones, by arrival.
    put_back: KeyRequests<V>,
    /// The others by priority, the highest first.
    classes: [PriorityClass<V>; 3],
    arrivals: u64,
    len: usize,
}

/// A request's place in the queue. Positions are never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    priority: Priority,
    key: u64,
    arrival: u64,
}

/// Requests of one priority. Each key with requests is in `turns` once, or is `last`.
///
/// Mostly no request has a key: then each operation touches few cache lines, which the threads of a service
/// take from each other.
#[derive(Debug)]
struct PriorityClass<V> {
    /// Requests of key 0.
    keyless: KeyRequests<V>,
    /// Requests of other keys, which are hashes already: at least one of each.
    by_key: FxHashMap<u64, KeyRequests<V>>,
    /// Keys in the order of their turns.
    turns: VecDeque<u64>,
    /// The key that had its turn last, if it has more requests. It goes behind those that come
    /// before its next turn.
    last: Option<u64>,
    /// Turns of other priorities since one of these requests had its turn, while some waited.
    passed_over: u32,
}

/// The requests of one key, each behind its arrival.
type KeyRequests<V> = VecDeque<(u64, V)>;

impl<V> Default for FairQueue<V> {
    fn default() -> Self {
        Self { put_back: VecDeque::new(), classes: Default::default(), arrivals: 0, len: 0 }
    }
}

impl<V> FairQueue<V> {
    pub(crate) fn push(&mut self, priority: Priority, key: u64, value: V) -> Position {
        let position = self.arrive(priority, key);
        self.len += 1;
        self.classes[priority as usize].push(position, value);
        position
    }

    /// A place for a request that does not have to wait now. It can be put back there.
    pub(crate) fn arrive(&mut self, priority: Priority, key: u64) -> Position {
        self.arrivals += 1;
        Position { priority, key, arrival: self.arrivals }
    }

    /// Puts a request back that had its turn in vain: it has the next one, whatever its priority.
    pub(crate) fn put_back(&mut self, position: Position, value: V) {
        self.len += 1;
        let at = self.put_back.partition_point(|(earlier, _)| *earlier < position.arrival);
        self.put_back.insert(at, (position.arrival, value));
    }

    /// The request whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<V> {
        if let Some((_, value)) = self.put_back.pop_front() {
            self.len -= 1;
            return Some(value);
        }
        let turn = self.turn()?;
        let value = self.classes[turn].pop()?;
        for (number, class) in self.classes.iter_mut().enumerate() {
            let has_waited = number != turn && !class.is_empty();
            class.passed_over = if has_waited { class.passed_over + 1 } else { 0 };
        }
        self.len -= 1;
        Some(value)
    }

    /// The request that `pop` would return.
    pub(crate) fn peek(&self) -> Option<&V> {
        match self.put_back.front() {
            Some((_, value)) => Some(value),
            None => self.classes[self.turn()?].peek(),
        }
    }

    /// The class whose turn it is: one that was passed over too often, or else the most urgent one.
    fn turn(&self) -> Option<usize> {
        let aged =
            self.classes.iter().position(|class| class.passed_over >= PASSED_OVER && !class.is_empty());
        aged.or_else(|| self.classes.iter().position(|class| !class.is_empty()))
    }

    /// Takes a request out that is no longer interested. None if it has had its turn. The last request
    /// of a key takes time in proportion to the keys.
    pub(crate) fn remove(&mut self, position: Position) -> Option<V> {
        let class = &mut self.classes[position.priority as usize];
        let value = match class.remove(position) {
            Some(value) => value,
            None => remove_arrival(&mut self.put_back, position.arrival)?,
        };
        if class.is_empty() {
            class.passed_over = 0;
        }
        self.len -= 1;
        Some(value)
    }

    /// Takes all requests out. Their positions are not used again: those who wait may still hold them.
    pub(crate) fn take_all(&mut self) -> Self {
        let rest = Self { arrivals: self.arrivals, ..Self::default() };
        std::mem::replace(self, rest)
    }

    /// All requests, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> {
        let lists = self.classes.iter().flat_map(|class| class.by_key.values().chain([&class.keyless]));
        lists.chain([&self.put_back]).flatten().map(|(_, value)| value)
    }

    /// All requests, in the order of their turns.
    pub(crate) fn into_values(mut self) -> impl Iterator<Item = V> {
        std::iter::from_fn(move || self.pop())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<V> Default for PriorityClass<V> {
    fn default() -> Self {
        let (keyless, turns) = (VecDeque::new(), VecDeque::new());
        Self { keyless, by_key: FxHashMap::default(), turns, last: None, passed_over: 0 }
    }
}

impl<V> PriorityClass<V> {
    fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.last.is_none()
    }

    fn requests(&self, key: u64) -> Option<&KeyRequests<V>> {
        if key == 0 { Some(&self.keyless) } else { self.by_key.get(&key) }
    }

    fn requests_mut(&mut self, key: u64) -> Option<&mut KeyRequests<V>> {
        if key == 0 { Some(&mut self.keyless) } else { self.by_key.get_mut(&key) }
    }

    fn requests_to_add_to(&mut self, key: u64) -> &mut KeyRequests<V> {
        if key == 0 { &mut self.keyless } else { self.by_key.entry(key).or_default() }
    }

    fn push(&mut self, Position { key, arrival, .. }: Position, value: V) {
        let requests = self.requests_to_add_to(key);
        // It has a turn already if it has requests.
        let has_turn = !requests.is_empty();
        requests.push_back((arrival, value));
        if !has_turn {
            self.turns.push_back(key);
        }
    }

    fn pop(&mut self) -> Option<V> {
        let last = self.last.take();
        let key = match self.turns.pop_front() {
            Some(next) => {
                self.turns.extend(last);
                next
            }
            None => last?,
        };
        let (_, value) = self.requests_mut(key)?.pop_front()?;
        if !self.remove_if_empty(key) {
            self.last = Some(key);
        }
        Some(value)
    }

    fn peek(&self) -> Option<&V> {
        let key = self.turns.front().or(self.last.as_ref())?;
        self.requests(*key)?.front().map(|(_, value)| value)
    }

    fn remove(&mut self, Position { key, arrival, .. }: Position) -> Option<V> {
        let value = remove_arrival(self.requests_mut(key)?, arrival)?;
        if self.remove_if_empty(key) {
            self.last.take_if(|last| *last == key);
            self.turns.retain(|other| *other != key);
        }
        Some(value)
    }

    /// Forgets the key if it has no requests. Says whether it had none.
    fn remove_if_empty(&mut self, key: u64) -> bool {
        let is_empty = self.requests(key).is_none_or(KeyRequests::is_empty);
        if is_empty && key != 0 {
            self.by_key.remove(&key);
        }
        is_empty
    }
}

fn remove_arrival<V>(requests: &mut KeyRequests<V>, arrival: u64) -> Option<V> {
    let index = requests.binary_search_by_key(&arrival, |(arrival, _)| *arrival).ok()?;
    requests.remove(index).map(|(_, value)| value)
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
    fn low_requests_are_not_passed_over_for_ever() {
        let mut queue = FairQueue::default();
        queue.push(Priority::Low, 0, "low");
        queue.push(Priority::Normal, 0, "normal");
        let turns = (0..100).map(|_| {
            queue.push(Priority::High, 0, "high");
            let next = queue.peek().copied();
            assert_eq!(queue.pop(), next);
            next.unwrap()
        });
        let turns: Vec<_> = turns.collect();
        let at = |value| turns.iter().position(|turn| *turn == value);
        assert_eq!((at("normal"), at("low")), (Some(32), Some(33)));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn turns_do_not_count_for_a_request_that_comes_later() {
        let mut queue = FairQueue::default();
        let gone = queue.push(Priority::Low, 0, "gone");
        for _ in 0..PASSED_OVER {
            queue.push(Priority::High, 0, "high");
            assert_eq!(queue.pop(), Some("high"));
        }
        assert_eq!(queue.peek(), Some(&"gone"));
        assert_eq!(queue.remove(gone), Some("gone"));
        queue.push(Priority::Low, 0, "low");
        queue.push(Priority::High, 0, "high");
        assert_eq!(drain(&mut queue), ["high", "low"]);
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
        assert!(queue.is_empty());
    }

    #[test]
    fn positions_are_not_used_again_once_all_are_taken() {
        let mut queue = FairQueue::default();
        let before = queue.push(Priority::Normal, 0, "before");
        assert_eq!(drain(&mut queue.take_all()), ["before"]);
        queue.push(Priority::Normal, 0, "after");
        assert_eq!((queue.remove(before), queue.len()), (None, 1));
    }

    #[test]
    fn a_key_that_comes_back_has_one_turn_a_round() {
        let mut queue = FairQueue::default();
        let first = queue.push(Priority::Normal, 1, "a1");
        let second = queue.push(Priority::Normal, 1, "a2");
        assert_eq!((queue.pop(), queue.remove(first)), (Some("a1"), None));
        assert_eq!(queue.remove(second), Some("a2"));
        for (key, value) in [(1, "a3"), (1, "a4"), (2, "b1"), (2, "b2")] {
            queue.push(Priority::Normal, key, value);
        }
        assert_eq!(drain(&mut queue), ["a3", "b1", "a4", "b2"]);
    }

    #[test]
    fn a_request_that_is_put_back_is_the_next() {
        let mut queue = FairQueue::default();
        let early = queue.arrive(Priority::Normal, 1);
        let first = queue.push(Priority::Normal, 1, "a1");
        let second = queue.push(Priority::Normal, 1, "a2");
        queue.push(Priority::Normal, 2, "b1");
        assert_eq!(queue.pop(), Some("a1"));
        queue.put_back(first, "a1");
        queue.put_back(early, "a0");
        assert_eq!(queue.remove(second), Some("a2"));
        assert_eq!((queue.len(), drain(&mut queue)), (3, vec!["a0", "a1", "b1"]));
    }

    #[test]
    fn a_request_that_is_put_back_keeps_its_age() {
        let mut queue = FairQueue::default();
        let low = queue.push(Priority::Low, 0, "low");
        for _ in 0..PASSED_OVER {
            queue.push(Priority::High, 0, "high");
            assert_eq!(queue.pop(), Some("high"));
        }
        queue.push(Priority::High, 0, "high");
        for _ in 0..2 {
            assert_eq!(queue.pop(), Some("low"));
            queue.put_back(low, "low");
        }
        queue.push(Priority::Low, 0, "later");
        assert_eq!(drain(&mut queue), ["low", "high", "later"]);
    }

    #[test]
    fn a_request_that_is_put_back_leaves_no_turn_behind() {
        let mut queue = FairQueue::default();
        let low = queue.push(Priority::Low, 0, "low");
        assert_eq!(queue.pop(), Some("low"));
        queue.put_back(low, "low");
        queue.push(Priority::Low, 0, "later");
        queue.push(Priority::High, 0, "high");
        assert_eq!(queue.remove(low), Some("low"));
        assert_eq!(drain(&mut queue), ["high", "later"]);
    }

    #[test]
    fn what_peek_shows_is_popped() {
        let mut queue = FairQueue::default();
        for (number, (priority, key)) in [
            (Priority::Normal, 1),
            (Priority::Low, 1),
            (Priority::Normal, 1),
            (Priority::High, 2),
            (Priority::Normal, 3),
        ]
        .into_iter()
        .enumerate()
        {
            queue.push(priority, key, number);
        }
        let mut all: Vec<usize> = queue.iter().copied().collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        while let Some(next) = queue.peek().copied() {
            assert_eq!(queue.pop(), Some(next));
        }
        assert!(queue.is_empty());
    }
}
