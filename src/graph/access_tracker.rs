//! Finds the edges that follow from declared accesses: read-after-write, write-after-read and
//! write-after-write, byte-exact.
//!
//! Every resource is a sequence of disjoint segments. The bytes of a segment have one history: the
//! last node that wrote them, and the nodes that have read them since. An access splits segments at
//! its two ends, if necessary, and updates those in between; a write leaves one segment. So the cost
//! of a node depends on its accesses, the segments they cover and the resulting edges, never on the
//! number of earlier nodes.
//!
//! Readers are linked lists that share their tails. Splitting a segment copies two indices, however
//! many readers it has, and equal histories are recognised by index.

use std::collections::BTreeMap;

use wakegraph_hal::{Access, ResourceId};

/// No node, or the end of a list.
const NONE: u32 = u32::MAX;

/// Derives the predecessors of each node from its accesses.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessTracker {
    /// Segments by resource and first byte.
    segments: BTreeMap<(ResourceId, usize), Segment>,
    readers: Readers,
    /// The predecessors of the last recorded node: sorted, each once.
    predecessors: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    end: usize,
    writer: u32,
    /// The readers since the writer. Each has an edge from it.
    readers: u32,
}

impl AccessTracker {
    /// Records the accesses of the next node, and returns the nodes that it must wait for: sorted, each
    /// once, never itself.
    pub(crate) fn record(&mut self, node: u32, accesses: &[Access]) -> &[u32] {
        // Adjacent segments share a history only if one node accessed both; callers declare such
        // pieces one after the other.
        let in_pieces = accesses.windows(2).any(|pair| pair[0].resource == pair[1].resource);
        self.predecessors.clear();
        let accesses = accesses.iter().filter(|access| access.start < access.end);
        // Collect before recording: a node that accesses the same bytes twice must not find itself.
        for access in accesses.clone() {
            self.collect_predecessors(node, access);
        }
        self.predecessors.sort_unstable();
        self.predecessors.dedup();
        for access in accesses.clone() {
            self.touch(node, access);
        }
        if in_pieces {
            for access in accesses {
                self.coalesce(access.resource, access.start);
                self.coalesce(access.resource, access.end);
            }
        }
        &self.predecessors
    }

    fn collect_predecessors(&mut self, node: u32, access: &Access) {
        let below_end = (access.resource, 0)..(access.resource, access.end);
        let segments = self.segments.range(below_end).rev().map(|(_, segment)| segment);
        for segment in segments.take_while(|segment| segment.end > access.start) {
            if access.mode.writes() && segment.readers != NONE {
                // The readers already wait for the writer.
                self.readers.visit(segment.readers, node, |reader| self.predecessors.push(reader));
            } else if segment.writer != NONE {
                self.predecessors.push(segment.writer);
            }
        }
    }

    fn touch(&mut self, node: u32, access: &Access) {
        let key = (access.resource, access.start);
        // The common case: a range that was accessed before.
        if let Some(segment) = self.segments.get_mut(&key)
            && segment.end == access.end
        {
            if access.mode.writes() {
                *segment = Segment::written(access.end, node);
            } else {
                segment.add_reader(node, &mut self.readers, &self.predecessors);
            }
            return;
        }
        self.split(access.resource, access.start);
        self.split(access.resource, access.end);
        if access.mode.writes() {
            while let Some((&covered, _)) = self.segments.range(key..(access.resource, access.end)).next() {
                self.segments.remove(&covered);
            }
            self.segments.insert(key, Segment::written(access.end, node));
        } else {
            self.read_segments(node, access);
        }
    }

    /// Adds a reader to all segments between two boundaries, and creates segments for the bytes
    /// that have none.
    fn read_segments(&mut self, node: u32, access: &Access) {
        let mut untouched = Vec::new();
        let mut covered = access.start;
        let within = (access.resource, access.start)..(access.resource, access.end);
        for (&(_, start), segment) in self.segments.range_mut(within) {
            if covered < start {
                untouched.push((covered, start));
            }
            covered = segment.end;
            segment.add_reader(node, &mut self.readers, &self.predecessors);
        }
        if covered < access.end {
            untouched.push((covered, access.end));
        }
        for (start, end) in untouched {
            let mut segment = Segment { end, writer: NONE, readers: NONE };
            segment.add_reader(node, &mut self.readers, &self.predecessors);
            self.segments.insert((access.resource, start), segment);
        }
    }

    /// Splits the segment that `at` lies within, if any.
    fn split(&mut self, resource: ResourceId, at: usize) {
        let Some((_, left)) = self.segments.range_mut((resource, 0)..(resource, at)).next_back() else {
            return;
        };
        if at < left.end {
            let right = *left;
            left.end = at;
            self.segments.insert((resource, at), right);
        }
    }

    /// Merges the two segments that meet at `at`, if they have the same history.
    fn coalesce(&mut self, resource: ResourceId, at: usize) {
        let Some(&right) = self.segments.get(&(resource, at)) else { return };
        if let Some((_, left)) = self.segments.range_mut((resource, 0)..(resource, at)).next_back()
            && (left.end, left.writer, left.readers) == (at, right.writer, right.readers)
        {
            left.end = right.end;
            self.segments.remove(&(resource, at));
        }
    }
}

impl Segment {
    fn written(end: usize, node: u32) -> Self {
        Self { end, writer: node, readers: NONE }
    }

    fn add_reader(&mut self, node: u32, readers: &mut Readers, predecessors: &[u32]) {
        // A node that has written the bytes is in their history already.
        if self.writer != node {
            self.readers = readers.push(self.readers, node, predecessors);
        }
    }
}

/// Lists of readers, most recent first, in one arena. Lists share tails; links never change.
#[derive(Clone, Debug, Default)]
struct Readers(Vec<Reader>);

#[derive(Clone, Copy, Debug)]
struct Reader {
    node: u32,
    earlier: u32,
    /// The last node that walked the list from here to its end.
    visited_by: u32,
}

impl Readers {
    /// Returns the list with `node` in front.
    ///
    /// Readers in front that `node` waits for are left out, because a node that waits for `node` waits
    /// for them, too. So a chain of nodes that all read a constant leaves one reader, not the whole
    /// chain.
    fn push(&mut self, list: u32, node: u32, predecessors: &[u32]) -> u32 {
        let mut earlier = list;
        while let Some(front) = self.0.get(earlier as usize) {
            if front.node == node {
                return earlier;
            }
            if predecessors.binary_search(&front.node).is_err() {
                break;
            }
            earlier = front.earlier;
        }
        // Segments that a node reads one after the other often share their readers, and keep doing so.
        let last = self.0.len().wrapping_sub(1);
        if let Some(reader) = self.0.get(last)
            && (reader.node, reader.earlier) == (node, earlier)
        {
            return last as u32;
        }
        let list = u32::try_from(self.0.len()).ok().filter(|&list| list != NONE);
        self.0.push(Reader { node, earlier, visited_by: NONE });
        list.expect("a graph declares fewer than 2^32 - 1 reads")
    }

    /// Calls `each` for every reader in the list that `visitor` has not visited before.
    fn visit(&mut self, list: u32, visitor: u32, mut each: impl FnMut(u32)) {
        let mut at = list;
        while let Some(reader) = self.0.get_mut(at as usize)
            && reader.visited_by != visitor
        {
            reader.visited_by = visitor;
            each(reader.node);
            at = reader.earlier;
        }
    }
}

#[cfg(test)]
mod tests {
    use wakegraph_hal::AccessMode::{self, Read, ReadWrite, Write};

    use super::*;

    const MANY: u32 = if cfg!(miri) { 50 } else { 1000 };

    fn tracker() -> (AccessTracker, impl Fn(AccessMode, usize, usize) -> Access) {
        let resource = ResourceId::unique();
        (AccessTracker::default(), move |mode, start, end| Access { resource, start, end, mode })
    }

    #[test]
    fn whole_range_writes_keep_one_segment() {
        let (mut tracker, access) = tracker();
        for node in 0..MANY {
            tracker.record(node, &[access(Write, 0, 64)]);
        }
        assert_eq!(tracker.segments.len(), 1);
        tracker.record(MANY, &[access(Read, 8, 16)]);
        tracker.record(MANY + 1, &[access(Write, 30, 40)]);
        assert_eq!(tracker.segments.len(), 5);
        assert_eq!(tracker.record(MANY + 2, &[access(ReadWrite, 0, 64)]), [MANY - 1, MANY, MANY + 1]);
        assert_eq!(tracker.segments.len(), 1);
    }

    #[test]
    fn pieces_that_one_node_touches_become_one_segment() {
        let (mut tracker, access) = tracker();
        tracker.record(
            0,
            &[access(Write, 8, 16), access(Write, 0, 8), access(Read, 2, 5), access(Read, 16, 16)],
        );
        assert_eq!(tracker.segments.len(), 1);
        tracker.record(1, &[access(Read, 0, 4), access(Read, 4, 16)]);
        assert_eq!(tracker.segments.len(), 1);
    }

    #[test]
    fn a_chain_of_readers_leaves_one_reader() {
        let (mut tracker, constant) = tracker();
        let (_, state) = self::tracker();
        for node in 0..100 {
            tracker.record(node, &[constant(Read, 0, 8), state(ReadWrite, 0, 8)]);
        }
        assert_eq!(tracker.record(100, &[constant(Write, 0, 8)]), [99]);
    }

    #[test]
    fn readers_are_shared_between_segments() {
        let (mut tracker, access) = tracker();
        let end = MANY as usize;
        for node in 0..MANY {
            tracker.record(node, &[access(Read, 0, end)]);
        }
        for (at, node) in (MANY..2 * MANY).enumerate() {
            tracker.record(node, &[access(Read, at, at + 1)]);
        }
        assert_eq!(tracker.readers.0.len(), 2 * end);
        assert_eq!(tracker.record(2 * MANY, &[access(Write, 0, end)]).len(), 2 * end);
    }
}
