//! Which executables a cache makes, keeps and drops.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::timeout;
use wakegraph::memory::ScratchArena;
use wakegraph::service::ExecutableCache;
use wakegraph::testing::FakeControl;
use wakegraph::{Error, ErrorKind, Graph};

use crate::common::{Count, PanicsOnDrop, fill, manual, poll_once, run};
use crate::support::{Hold, block_on, must_end};

/// A cache of executables that have as many bytes as their key says, and a count of those made.
fn by_bytes(limit: u64) -> (ExecutableCache<usize>, Count, FakeControl) {
    let (device, control) = manual("fake");
    let made = Count::default();
    let count = made.clone();
    let cache = ExecutableCache::new(limit, move |&bytes| {
        count.add_one();
        Ok((fill(&device, bytes)?, ()))
    });
    (cache, made, control)
}

#[test]
fn an_executable_is_made_once() {
    run(async {
        let (cache, made, control) = by_bytes(10_000);
        for result in join_all((0..20).map(|_| cache.get(&100))).await {
            drop(result.unwrap());
        }
        let exec = cache.get(&100).await.unwrap();
        let submission = exec.submit();
        control.complete_all();
        submission.await.unwrap();
        assert_eq!((made.get(), cache.len(), cache.device_memory()), (1, 1, 100));
    });
}

#[test]
fn the_least_recently_used_are_dropped() {
    run(async {
        let (cache, made, _) = by_bytes(1000);
        for key in [300, 301, 302] {
            cache.get(&key).await.unwrap();
        }
        cache.get(&300).await.unwrap();
        assert_eq!((made.get(), cache.device_memory()), (3, 903));
        cache.get(&303).await.unwrap();
        assert_eq!((made.get(), cache.len(), cache.device_memory()), (4, 3, 905));
        cache.get(&300).await.unwrap();
        cache.get(&302).await.unwrap();
        assert_eq!(made.get(), 4);
        cache.get(&301).await.unwrap();
        assert_eq!(made.get(), 5);
    });
}

#[test]
fn memory_never_exceeds_the_limit_once_sizes_are_known() {
    run(async {
        let (device, _) = manual("fake");
        let (most, cache) = (Arc::new(Mutex::new(0)), Arc::new(OnceLock::<ExecutableCache<usize>>::new()));
        let (seen, own) = (most.clone(), Arc::downgrade(&cache));
        let made = ExecutableCache::new(5000, move |&bytes: &usize| {
            let own = own.upgrade();
            let others = own.as_ref().and_then(|own| own.get()).map_or(0, ExecutableCache::device_memory);
            let mut most = seen.lock();
            *most = (others + bytes as u64).max(*most);
            Ok((fill(&device, bytes)?, ()))
        });
        cache.set(made.clone()).unwrap();
        made.get(&2000).await.unwrap();
        for number in 0..if cfg!(miri) { 20 } else { 500usize } {
            made.get(&(1 + number * 7919 % 2000)).await.unwrap();
        }
        assert!((4000..=5000).contains(&*most.lock()));
    });
}

#[test]
fn what_callers_hold_is_not_dropped() {
    run(async {
        let (cache, made, _) = by_bytes(500);
        let held = cache.get(&400).await.unwrap();
        let other = cache.get(&401).await.unwrap();
        assert_eq!((cache.len(), cache.device_memory()), (2, 801));
        drop(held);
        cache.get(&1).await.unwrap();
        assert_eq!((made.get(), cache.device_memory()), (3, 402));
        drop(other);
    });
}

#[test]
fn shared_memory_counts_once() {
    run(async {
        let (device, _) = manual("fake");
        let weights = device.buffer::<u8>(1000).unwrap();
        let cache = ExecutableCache::new(10_000, move |&bytes: &usize| {
            let mut graph = Graph::new(&device);
            graph.copy(&weights.slice(..bytes)?, &device.buffer::<u8>(bytes)?);
            Ok((graph.finalize()?, ()))
        });
        for bytes in [10, 20, 30] {
            cache.get(&bytes).await.unwrap();
        }
        assert_eq!(cache.device_memory(), 1060);
    });
}

#[test]
fn an_arena_that_grows_leaves_no_executable_behind() {
    run(async {
        let (device, control) = manual("fake");
        let (made, arena) = (Count::default(), ScratchArena::new());
        let (count, shared) = (made.clone(), arena.clone());
        let cache = ExecutableCache::new(u64::MAX, move |&bytes: &usize| {
            count.add_one();
            let mut graph = Graph::new(&device);
            graph.share_scratch(&shared);
            let scratch = graph.scratch::<u8>(bytes)?;
            graph.fill(&scratch, 1);
            Ok((graph.finalize()?, ()))
        });
        cache.get(&1024).await.unwrap();
        let held = cache.get(&2048).await.unwrap();
        assert_eq!((made.get(), cache.len(), cache.device_memory()), (2, 1, 2048));
        cache.get(&4096).await.unwrap();
        // The one that is held keeps its memory.
        assert_eq!((made.get(), cache.len(), cache.device_memory()), (3, 2, 2048 + 4096));
        let running = held.submit();
        control.complete_all();
        running.await.unwrap();
        drop(held);
        cache.get(&1024).await.unwrap();
        assert_eq!((made.get(), cache.len(), cache.device_memory()), (4, 2, 4096));
        for bytes in [2048, 1024, 4096, 2048] {
            cache.get(&bytes).await.unwrap();
        }
        assert_eq!((made.get(), cache.len(), cache.device_memory()), (5, 3, 4096));
    });
}

#[test]
fn runs_that_share_an_arena_follow_each_other() {
    run(async {
        let (device, control) = manual("fake");
        let arena = ScratchArena::new();
        let submit = |bytes: usize| {
            let mut graph = Graph::new(&device);
            graph.share_scratch(&arena);
            let scratch = graph.scratch::<u8>(bytes).unwrap();
            graph.fill(&scratch, 1);
            graph.finalize().unwrap().submit()
        };
        let (mut first, mut second) = (submit(2048), submit(1024));
        // The second one is on the device already, behind the first.
        assert_eq!(control.pending(), 2);
        assert!(control.complete_next(None));
        assert!(poll_once(&mut first).is_ready() && poll_once(&mut second).is_pending());
        assert!(control.complete_next(None));
        assert!(poll_once(&mut second).is_ready());
    });
}

#[test]
fn a_failure_is_not_kept() {
    run(async {
        let (device, _) = manual("fake");
        let tries = Count::default();
        let (both_wait, waiting) = mpsc::channel();
        let waiting = Mutex::new(waiting);
        let cache = ExecutableCache::new(1000, move |_: &u32| match tries.add_one() {
            0 => {
                waiting.lock().recv().unwrap();
                Err(Error::new(ErrorKind::OutOfMemory, "no memory"))
            }
            1 => panic!("an expected panic"),
            _ => Ok((fill(&device, 4)?, "made")),
        });
        let (mut first, mut second) = (Box::pin(cache.get(&1)), Box::pin(cache.get(&1)));
        assert!(poll_once(&mut first).is_pending() && poll_once(&mut second).is_pending());
        both_wait.send(()).unwrap();
        assert_eq!(first.await.unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(second.await.unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert!(cache.is_empty());
        assert_eq!(cache.get(&1).await.unwrap_err().kind(), ErrorKind::HostTaskPanicked);
        assert_eq!(*cache.get(&1).await.unwrap(), "made");
    });
}

/// A key that asks the cache when it is dropped.
#[derive(Clone)]
struct Curious {
    number: usize,
    asked: Arc<Mutex<Option<ExecutableCache<Curious>>>>,
}

impl PartialEq for Curious {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Curious {}

impl Hash for Curious {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl Drop for Curious {
    fn drop(&mut self) {
        let cache = self.asked.lock().clone();
        cache.iter().for_each(|cache| _ = cache.len());
    }
}

#[test]
fn keys_are_dropped_without_the_lock_of_the_cache() {
    run(async {
        let (device, _control) = manual("fake");
        let cache = ExecutableCache::new(100, move |key: &Curious| match key.number {
            0 => Err(Error::new(ErrorKind::Unavailable, "as it should")),
            bytes => Ok((fill(&device, bytes)?, ())),
        });
        let asked = Arc::new(Mutex::new(Some(cache.clone())));
        let key = |number| Curious { number, asked: asked.clone() };
        let get = async |number| timeout(Duration::from_secs(60), cache.get(&key(number))).await;
        assert_eq!(get(0).await.expect("it ends").unwrap_err().kind(), ErrorKind::Unavailable);
        for number in [60, 61, 60] {
            get(number).await.expect("it ends").unwrap();
        }
        asked.lock().take();
    });
}

#[test]
fn a_value_whose_drop_panics_fails_no_other_key() {
    run(async {
        let (device, _) = manual("fake");
        let cache = ExecutableCache::new(4, move |&key: &u32| {
            Ok((fill(&device, 4)?, (key == 1).then(|| PanicsOnDrop)))
        });
        drop(cache.get(&1).await.unwrap());
        // Makes room by dropping the first one.
        assert!(cache.get(&2).await.unwrap().is_none());
        assert_eq!(cache.len(), 1);
    });
}

#[test]
fn making_goes_on_when_the_caller_has_gone() {
    run(async {
        let (device, _) = manual("fake");
        let (made, (is_gone, going)) = (Count::default(), mpsc::channel());
        let (count, going) = (made.clone(), Mutex::new(going));
        let cache = ExecutableCache::new(1000, move |_: &u32| {
            going.lock().recv().unwrap();
            count.add_one();
            Ok((fill(&device, 4)?, ()))
        });
        let mut call = Box::pin(cache.get(&1));
        assert!(poll_once(&mut call).is_pending());
        drop(call);
        is_gone.send(()).unwrap();
        cache.get(&1).await.unwrap();
        assert_eq!(made.get(), 1);
    });
}

#[test]
fn memory_is_free_when_the_cache_is_dropped() {
    run(async {
        let (device, _) = manual("fake");
        let token = Arc::new(());
        let kept = token.clone();
        let cache = ExecutableCache::new(1000, move |_: &u32| Ok((fill(&device, 4)?, kept.clone())));
        drop(cache.get(&1).await.unwrap());
        drop(cache);
        // The thread that made it may hold the cache for a moment.
        while Arc::strong_count(&token) > 1 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn what_calls_wait_for_is_not_dropped() {
    must_end(|| {
        run(async {
            let ((device, _), hold, made) = (manual("fake"), Hold::new(), Count::default());
            let (held, count) = (hold.held(), made.clone());
            let cache = ExecutableCache::new(1000, move |&bytes: &usize| {
                held.pass();
                count.add_one();
                Ok((fill(&device, bytes)?, ()))
            });
            let keys = [600, 601, 602, 603];
            let mut calls: Vec<_> = keys.iter().map(|key| Box::pin(cache.get(key))).collect();
            for call in &mut calls {
                assert!(poll_once(call).is_pending());
            }
            // All of them are made before the first call sees its own.
            hold.open();
            while cache.device_memory() < keys.iter().sum::<usize>() as u64 {
                tokio::task::yield_now().await;
            }
            drop(calls.pop());
            for call in calls {
                call.await.unwrap();
            }
            assert_eq!(made.get(), keys.len());
            cache.get(&1).await.unwrap();
            assert_eq!((made.get(), cache.len(), cache.device_memory()), (5, 1, 1));
        });
    });
}

#[test]
fn a_full_blocking_pool_gets_its_executable() {
    must_end(|| {
        let (cache, _, _) = by_bytes(1000);
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).max_blocking_threads(1).build().unwrap();
        let handle = runtime.handle().clone();
        let handler = runtime.spawn_blocking(move || handle.block_on(cache.get(&1)).map(drop));
        runtime.block_on(handler).unwrap().unwrap();
    });
}

#[test]
fn a_cache_works_without_a_runtime() {
    let (cache, ..) = by_bytes(1000);
    assert!(block_on(cache.get(&1)).is_ok());
}

#[test]
fn hits_leave_other_tasks_their_turn() {
    must_end(|| {
        run(async {
            let (cache, ..) = by_bytes(1000);
            cache.get(&1).await.unwrap();
            let other = tokio::spawn(async {});
            while !other.is_finished() {
                cache.get(&1).await.unwrap();
            }
        });
    });
}
