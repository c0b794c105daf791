//! Compressed sparse rows: many short lists of numbers in two flat arrays.

/// Lists of numbers. List `i` is `items[starts[i]..starts[i + 1]]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Csr {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Csr {
    /// Creates an empty collection with room for `lists` lists and `items` entries in all.
    pub(super) fn with_capacity(lists: usize, items: usize) -> Self {
        let mut starts = Vec::with_capacity(lists + 1);
        starts.push(0);
        Self { starts, items: Vec::with_capacity(items) }
    }

    /// Makes room for more lists and entries.
    pub(super) fn reserve(&mut self, lists: usize, items: usize) {
        self.starts.reserve(lists);
        self.items.reserve(items);
    }

    /// Creates `count` lists from `(list, item)` pairs. Items keep the order of the pairs.
    pub(super) fn gather(count: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        Self::append_ascending(count, pairs.clone()).unwrap_or_else(|| Self::sort(count, pairs))
    }

    /// Walks the pairs once, if no list comes before an earlier pair's: graphs are mostly built in the order
    /// of their nodes.
    fn append_ascending(count: usize, pairs: impl Iterator<Item = (u32, u32)>) -> Option<Self> {
        let mut lists = Self::with_capacity(count, pairs.size_hint().0);
        for (list, item) in pairs {
            if (list as usize) < lists.len() {
                return None;
            }
            while lists.len() < list as usize {
                lists.close();
            }
            lists.push(item);
        }
        lists.close_many(count - lists.len());
        Some(lists)
    }

    /// Walks the pairs twice.
    fn sort(count: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        // One slot further than usual: after the prefix sum, slot `i + 1` is the write cursor of
        // list `i`, and once all is written it is that list's end. So one array is count, cursor
        // and result.
        let mut starts = vec![0; count + 2];
        for (list, _) in pairs.clone() {
            starts[list as usize + 2] += 1;
        }
        let mut total = 0;
        for start in &mut starts {
            total += *start;
            *start = total;
        }
        let mut items = vec![0; total as usize];
        for (list, item) in pairs {
            let cursor = &mut starts[list as usize + 1];
            items[*cursor as usize] = item;
            *cursor += 1;
        }
        starts.pop();
        Self { starts, items }
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(super) fn get(&self, list: usize) -> &[u32] {
        &self.items[self.starts[list] as usize..self.starts[list + 1] as usize]
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &[u32]> + Clone + ExactSizeIterator {
        self.starts.windows(2).map(|ends| &self.items[ends[0] as usize..ends[1] as usize])
    }

    /// All entries of all lists.
    pub(super) fn items(&self) -> &[u32] {
        &self.items
    }

    /// Index in [`items`](Self::items) of the first entry of a list.
    pub(super) fn start(&self, list: usize) -> usize {
        self.starts[list] as usize
    }

    /// Replaces every entry.
    pub(super) fn map_items(&mut self, rename: impl Fn(u32) -> u32) {
        self.items.iter_mut().for_each(|item| *item = rename(*item));
    }

    /// Appends an entry to the open list.
    pub(super) fn push(&mut self, item: u32) {
        self.items.push(item);
    }

    /// Ends the open list and opens the next one.
    pub(super) fn close(&mut self) {
        self.starts.push(self.items.len() as u32);
    }

    /// Ends the open list and adds empty ones, `count` lists in all.
    pub(super) fn close_many(&mut self, count: usize) {
        self.starts.resize(self.starts.len() + count, self.items.len() as u32);
    }

    /// Removes the lists from `count` on. The open list is empty then.
    pub(super) fn truncate(&mut self, count: usize) {
        self.items.truncate(self.starts[count] as usize);
        self.starts.truncate(count + 1);
    }

    /// Some of the lists.
    pub(super) fn lists(&self, range: std::ops::Range<usize>) -> Lists<'_> {
        Lists { starts: &self.starts[range.start..=range.end], items: &self.items }
    }

    /// Appends a whole list.
    pub(super) fn add_slice(&mut self, list: &[u32]) {
        self.items.extend_from_slice(list);
        self.close();
    }

    /// Appends a whole list.
    pub(super) fn add(&mut self, list: impl Iterator<Item = u32>) {
        self.items.extend(list);
        self.close();
    }

    /// The transposed relation: for every item (below `count`) the lists that contain it, ascending.
    pub(super) fn transposed(&self, count: usize) -> Self {
        Self::gather(count, PairsOf { lists: self, list: 0, at: 0 })
    }

    pub(super) fn shrink(&mut self) {
        self.starts.shrink_to_fit();
        self.items.shrink_to_fit();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        (self.starts.capacity() + self.items.capacity()) * size_of::<u32>()
    }
}

/// A part of the lists, which are numbered from 0 in it.
#[derive(Clone, Copy)]
pub(super) struct Lists<'a> {
    starts: &'a [u32],
    items: &'a [u32],
}

impl<'a> Lists<'a> {
    pub(super) fn len(self) -> usize {
        self.starts.len() - 1
    }

    pub(super) fn get(self, list: usize) -> &'a [u32] {
        &self.items[self.starts[list] as usize..self.starts[list + 1] as usize]
    }

    pub(super) fn iter(self) -> impl Iterator<Item = &'a [u32]> {
        self.starts.windows(2).map(|ends| &self.items[ends[0] as usize..ends[1] as usize])
    }

    /// All entries of these lists.
    pub(super) fn items(self) -> &'a [u32] {
        &self.items[self.starts[0] as usize..self.starts[self.len()] as usize]
    }
}

/// `(item, list)` of every entry.
#[derive(Clone)]
struct PairsOf<'a> {
    lists: &'a Csr,
    list: u32,
    at: u32,
}

impl Iterator for PairsOf<'_> {
    type Item = (u32, u32);

    fn next(&mut self) -> Option<(u32, u32)> {
        let item = *self.lists.items.get(self.at as usize)?;
        while self.lists.starts[self.list as usize + 1] <= self.at {
            self.list += 1;
        }
        self.at += 1;
        Some((item, self.list))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.lists.items.len() - self.at as usize;
        (left, Some(left))
    }
}
