//! The watchdog: a thread that names what does not end, and ends the process.

use std::collections::BTreeMap;
use std::process::abort;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::settings;

/// Something that has to end. Dropping it says that it has.
pub(crate) struct Watched(u64);

struct Entry {
    since: Instant,
    /// `None` if it has ended unnoticed.
    describe: Box<dyn Fn() -> Option<String> + Send>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

static ENTRIES: LazyLock<Mutex<Entries>> = LazyLock::new(|| {
    thread::Builder::new().name("storm-watchdog".into()).spawn(keep_watch).expect("a thread");
    Mutex::default()
});

/// Watches something that has a name.
pub(crate) fn watch_named(name: String) -> Watched {
    watch(move || Some(name.clone()))
}

/// Watches something that `describe` describes once it has taken too long.
pub(crate) fn watch(describe: impl Fn() -> Option<String> + Send + 'static) -> Watched {
    let mut all = ENTRIES.lock();
    all.next += 1;
    let key = all.next;
    all.entries.insert(key, Entry { since: Instant::now(), describe: Box::new(describe) });
    Watched(key)
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The description may be the last to hold a submission, whose drop is not for under the lock.
        let entry = ENTRIES.lock().entries.remove(&self.0);
        drop(entry);
    }
}

fn keep_watch() {
    const SHOWN: usize = 20;
    let timeout = settings().timeout;
    loop {
        thread::sleep(Duration::from_secs(1));
        let all = ENTRIES.lock();
        let late = all.entries.values().filter(|entry| entry.since.elapsed() > timeout);
        let late: Vec<_> = late.filter_map(|entry| Some((entry.since, (entry.describe)()?))).collect();
        if late.is_empty() {
            continue;
        }
        eprintln!("\nHANG: {} things have not ended within {timeout:?}", late.len());
        for (since, what) in late.iter().take(SHOWN) {
            eprintln!("- since {:?}: {what}", since.elapsed());
        }
        abort();
    }
}
