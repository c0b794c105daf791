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

    /// Creates `count` lists from `(list, item)` pairs, which are walked twice. Items keep the
    /// order of the pairs.
    pub(super) fn gather(count: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
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

    /// Returns all entries of all lists.
    pub(super) fn into_items(self) -> Vec<u32> {
        self.items
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
}
