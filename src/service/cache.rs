//! Executables by shape, made when they are needed.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use wakegraph_hal::{Error, ErrorKind, ResourceId, Result};

use crate::runtime::{ExecutableGraph, Submission, on_thread, take_turn};
use crate::service::device_memory::DeviceMemory;
use crate::service::drain::Drain;
use crate::sync::{AtomicU64, Ordering};
use crate::util::panics;

/// Executables by key, such as the shape of their inputs, within a limit of device memory.
///
/// The cache makes an executable when a key is asked for the first time, on a thread of its own, and once
/// however many ask meanwhile. When all of them together have more device memory than the limit, the cache
/// drops those that were used least recently and that no caller holds or waits for.
/// Memory that several executables use, such as weights, counts once.
///
/// With a [`ScratchArena`](crate::memory::ScratchArena), the scratch buffers of all executables together
/// take as much memory as those of the largest. When the arena grows, the cache drops the executables
/// that were made before, and makes them again when they are asked for. To avoid that, ask for the
/// largest key first, or reserve the arena's memory.
///
/// As those of a `HashMap` behind a lock, the keys' `Hash`, `Eq` and `Clone` must not use the cache: they
/// are called while it is locked. `make` and the `Drop` of keys and values may use it.
///
/// Clones are handles to the same cache. Runs of one executable come one after the other. A service
/// that wants several requests of one shape in flight gives each slot of an
/// [`ExecutablePool`](super::ExecutablePool) a cache of its own.
///
/// ```
/// use wakegraph::service::ExecutableCache;
/// use wakegraph::{Buffer, Device, Graph, Result};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let device = Device::best()?;
/// let by_length = ExecutableCache::new(64 << 20, move |&len: &usize| {
///     let ones: Buffer<u32> = device.buffer(len)?;
///     let mut graph = Graph::new(&device);
///     graph.fill(&ones, 1);
///     Ok((graph.finalize()?, ones))
/// });
/// let three = by_length.get(&3).await?;
/// three.submit().await?;
/// assert_eq!(three.to_vec().await?, [1, 1, 1]);
/// # Ok(())
/// # }
/// ```
pub struct ExecutableCache<K, T = ()> {
    inner: Arc<CacheInner<K, T>>,
}

/// An executable of an [`ExecutableCache`]. Dereferences to what the cache's closure made beside
/// it.
///
/// The cache does not drop an executable while a handle to it exists.
pub struct CachedExecutable<T> {
    entry: Arc<Cached<T>>,
    /// Dropped after the entry.
    _user: CacheUser,
}

struct CacheInner<K, T> {
    make: Box<MakeExecutable<K, T>>,
    /// Bytes of device memory.
    limit: u64,
    memory: Arc<Mutex<CacheMemory>>,
    users: Arc<CacheUsers>,
    state: Mutex<CacheState<K, T>>,
}

/// The calls that wait for an executable of a cache, and the handles that callers hold.
struct CacheUsers {
    count: AtomicU64,
    drain: Drain,
}

/// One of the users of a cache.
struct CacheUser(Arc<CacheUsers>);

impl CacheUser {
    fn new(users: &Arc<CacheUsers>) -> Self {
        users.count.fetch_add(1, Ordering::SeqCst);
        Self(users.clone())
    }
}

impl Drop for CacheUser {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.drain.work_left();
    }
}

type MakeExecutable<K, T> = dyn Fn(&K) -> Result<(ExecutableGraph, T)> + Send + Sync;

struct CacheState<K, T> {
    entries: HashMap<K, CacheEntry<T>>,
    /// Counts the calls of `get`.
    clock: u64,
}

struct CacheEntry<T> {
    /// The call of `get` that asked for it last.
    used_at: u64,
    /// Each call that waits for it has another reference, until it has got it.
    waiting: Arc<()>,
    content: CacheContent<T>,
}

enum CacheContent<T> {
    Making(watch::Receiver<Option<Made<T>>>),
    Ready(Arc<Cached<T>>),
}

/// The cache alone keeps an executable, so that the number of references tells whether a caller
/// holds it.
type Made<T> = Result<Weak<Cached<T>>>;

struct Cached<T> {
    executable: ExecutableGraph,
    value: T,
    /// Dropped last, when the memory is free.
    _memory: CountedMemory,
}

impl<K, T> ExecutableCache<K, T>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    /// A cache whose executables have at most `limit` bytes of device memory together. `make` makes
    /// the executable for a key, and what its users need beside it.
    ///
    /// The memory of an executable is known when it has been made. So the cache makes room for one
    /// as large as the largest so far before it makes another; while one is made that is larger
    /// than all before, and while callers hold or wait for more than the limit, the memory exceeds it.
    /// What they give back is dropped when the cache next makes an executable.
    pub fn new(
        limit: u64,
        make: impl Fn(&K) -> Result<(ExecutableGraph, T)> + Send + Sync + 'static,
    ) -> Self {
        let state = Mutex::new(CacheState { entries: HashMap::new(), clock: 0 });
        let (make, memory) = (Box::new(make), Arc::default());
        let users = Arc::new(CacheUsers { count: AtomicU64::new(0), drain: Drain::new("cache") });
        Self { inner: Arc::new(CacheInner { make, limit, memory, users, state }) }
    }

    /// The executable for a key. Makes it if the cache does not have it, on a thread of its own that is
    /// inside the caller's tokio runtime, if there is one.
    ///
    /// # Errors
    /// The closure's, for all who wait for this key; the next call tries again.
    /// [`HostTaskPanicked`](ErrorKind::HostTaskPanicked) when the closure panics,
    /// [`Unavailable`](ErrorKind::Unavailable) when the system has no thread to give, and at once when the
    /// cache is [closed](Self::close).
    ///
    /// # Cancel safety
    /// Cancel safe. An executable that is being made is finished and kept, whether or not a caller
    /// still waits for it.
    pub async fn get(&self, key: &K) -> Result<CachedExecutable<T>> {
        let user = CacheUser::new(&self.inner.users);
        self.inner.users.drain.accepts()?;
        loop {
            let (content, _waiting) = self.inner.find(key)?;
            let mut making = match content {
                CacheContent::Ready(entry) => {
                    take_turn().await;
                    return Ok(CachedExecutable { entry, _user: user });
                }
                CacheContent::Making(making) => making,
            };
            let no_thread = |_| Error::new(ErrorKind::Unavailable, "no thread made the executable");
            let made = making.wait_for(Option::is_some).await.map_err(no_thread)?.clone();
            if let Some(entry) = made.transpose()?.and_then(|made| made.upgrade()) {
                return Ok(CachedExecutable { entry, _user: user });
            }
        }
    }

    /// Gives no more executables: from now on, [`get`](Self::get) fails with
    /// [`Unavailable`](ErrorKind::Unavailable) at once, for all handles of this cache. Calls that wait for an
    /// executable get it.
    pub fn close(&self) {
        self.inner.users.drain.close();
    }

    /// [Closes](Self::close) the cache, and waits until no caller waits for an executable or holds one, for
    /// `limit` at most. Runs that are still in flight then are those of their device, which
    /// [drains](crate::Device::drain) them.
    ///
    /// # Errors
    /// [`DeadlineExceeded`](ErrorKind::DeadlineExceeded) with the number of callers that are left.
    /// [`Unavailable`](ErrorKind::Unavailable) on a tokio runtime without its timer, if one is left.
    ///
    /// # Cancel safety
    /// The cache stays closed. Call it again to go on waiting.
    pub async fn drain(&self, limit: Duration) -> Result<()> {
        self.close();
        let what_is_left = || match self.inner.users.count.load(Ordering::SeqCst) {
            0 => None,
            count => Some(format!("callers that hold an executable or wait for one: {count}")),
        };
        self.inner.users.drain.wait(limit, what_is_left).await
    }

    /// Returns the number of executables that the cache has or is making.
    pub fn len(&self) -> usize {
        self.inner.state.lock().entries.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of device memory of the executables in the cache, and of those that callers still
    /// hold.
    pub fn device_memory(&self) -> u64 {
        self.inner.memory.lock().all.bytes()
    }
}

impl<K, T> CacheInner<K, T>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    /// The content of a key's entry, and what keeps it from being dropped. If there is no entry, starts to
    /// make it.
    fn find(self: &Arc<Self>, key: &K) -> Result<(CacheContent<T>, Arc<()>)> {
        let mut state = self.state.lock();
        state.clock += 1;
        let used_at = state.clock;
        if let Some(entry) = state.entries.get_mut(key) {
            let is_abandoned =
                matches!(&entry.content, CacheContent::Making(making) if making.has_changed().is_err());
            if !is_abandoned {
                entry.used_at = used_at;
                return Ok((entry.content.clone(), entry.waiting.clone()));
            }
        }
        let (sender, making) = watch::channel(None);
        let (content, waiting) = (CacheContent::Making(making), Arc::default());
        // The key of an abandoned entry is a value of the user's.
        let abandoned = state.entries.remove_entry(key);
        let entry = CacheEntry { used_at, waiting: Arc::clone(&waiting), content: content.clone() };
        state.entries.insert(key.clone(), entry);
        drop(state);
        abandoned.into_iter().for_each(drop_entry);
        let (cache, key) = (self.clone(), key.clone());
        // Without a thread the entry is abandoned.
        on_thread(move || drop(sender.send_replace(Some(cache.make(&key)))))?;
        Ok((content, waiting))
    }

    fn make(&self, key: &K) -> Made<T> {
        let largest = self.memory.lock().largest;
        self.evict(largest);
        let made = panics::catch(|| (self.make)(key)).unwrap_or_else(|panic| {
            let why = format!("the closure that makes executables panicked: {panic}");
            Err(Error::new(ErrorKind::HostTaskPanicked, why))
        });
        let made = made.map(|(executable, value)| {
            let memory = CountedMemory::new(&self.memory, &executable);
            Arc::new(Cached { executable, value, _memory: memory })
        });
        let failed = {
            let mut state = self.state.lock();
            match (&made, state.entries.get_mut(key)) {
                (Ok(cached), Some(entry)) => {
                    entry.content = CacheContent::Ready(cached.clone());
                    None
                }
                (Ok(_), None) => None,
                (Err(_), _) => state.entries.remove_entry(key),
            }
        };
        failed.into_iter().for_each(drop_entry);
        self.evict_outgrown();
        self.evict(0);
        made.map(|cached| Arc::downgrade(&cached))
    }

    /// Drops executables that no caller holds or waits for, and whose arena has grown: made again, they
    /// use the same memory as the others.
    fn evict_outgrown(&self) {
        let has_outgrown = |entry: &CacheEntry<T>| match &entry.content {
            CacheContent::Ready(cached) => entry.is_idle() && cached.executable.has_outgrown_scratch(),
            CacheContent::Making(_) => false,
        };
        let mut state = self.state.lock();
        let dropped: Vec<_> = state.entries.extract_if(|_, entry| has_outgrown(entry)).collect();
        drop(state);
        dropped.into_iter().for_each(drop_entry);
    }

    /// Drops executables that no caller holds or waits for, the least recently used first, until there is
    /// room for `more` bytes.
    fn evict(&self, more: u64) {
        while self.memory.lock().all.bytes().saturating_add(more) > self.limit {
            let mut state = self.state.lock();
            let idle = state.entries.iter().filter(|(_, entry)| entry.is_idle());
            let Some(oldest) = idle.min_by_key(|(_, entry)| entry.used_at).map(|(key, _)| key.clone()) else {
                return;
            };
            let dropped = state.entries.remove_entry(&oldest);
            drop(state);
            dropped.into_iter().for_each(drop_entry);
            panics::catch_and_log("the drop of a key", || drop(oldest));
        }
    }
}

/// Drops an executable, and what is the user's beside it. The one that is being made has no part in a panic.
fn drop_entry<K, T>(entry: (K, CacheEntry<T>)) {
    panics::catch_and_log("the drop of a cached executable", || drop(entry));
}

impl<T> CacheEntry<T> {
    fn is_idle(&self) -> bool {
        let is_held = |cached| Arc::strong_count(cached) > 1;
        let is_awaited = Arc::strong_count(&self.waiting) > 1;
        matches!(&self.content, CacheContent::Ready(cached) if !is_awaited && !is_held(cached))
    }
}

impl<T> Clone for CacheContent<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Making(making) => Self::Making(making.clone()),
            Self::Ready(cached) => Self::Ready(cached.clone()),
        }
    }
}

/// The device memory of all executables of a cache.
#[derive(Default)]
struct CacheMemory {
    all: DeviceMemory,
    /// The most that an executable added so far.
    largest: u64,
}

/// The device memory of one executable, counted as long as this exists.
struct CountedMemory {
    cache: Arc<Mutex<CacheMemory>>,
    own: Box<[(ResourceId, u64)]>,
}

impl CountedMemory {
    fn new(cache: &Arc<Mutex<CacheMemory>>, executable: &ExecutableGraph) -> Self {
        let own: Box<[_]> = executable.device_memory().collect();
        let mut memory = cache.lock();
        let added = memory.all.add(own.iter().copied());
        memory.largest = memory.largest.max(added);
        drop(memory);
        Self { cache: cache.clone(), own }
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.cache.lock().all.remove(self.own.iter().copied());
    }
}

impl<T> CachedExecutable<T> {
    /// Submits the executable; see [`ExecutableGraph::submit`].
    pub fn submit(&self) -> Submission {
        self.executable().submit()
    }

    /// The executable.
    pub fn executable(&self) -> &ExecutableGraph {
        &self.entry.executable
    }
}

impl<T> Deref for CachedExecutable<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.entry.value
    }
}

impl<T> Clone for CachedExecutable<T> {
    fn clone(&self) -> Self {
        Self { entry: self.entry.clone(), _user: CacheUser::new(&self._user.0) }
    }
}

impl<T: Debug> Debug for CachedExecutable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CachedExecutable").field(&**self).finish()
    }
}

impl<K, T> Clone for ExecutableCache<K, T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<K, T> Debug for ExecutableCache<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutableCache")
            .field("limit", &self.inner.limit)
            .field("device_memory", &self.inner.memory.lock().all.bytes())
            .finish_non_exhaustive()
    }
}
