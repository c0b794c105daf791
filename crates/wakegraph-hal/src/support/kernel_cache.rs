//! Compiled kernels on disk: a process that starts again loads what an earlier one has compiled.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use etcetera::BaseStrategy as _;
use parking_lot::{Mutex, RwLock};

use crate::{CodeOrigin, Error, ErrorKind, Result};

/// A folder in which this process and later ones find kernels that have been compiled before.
///
/// Off until it is [enabled](Self::enable), which holds for all devices of the process. A service that starts
/// with every deployment then compiles each kernel once, and not at every start.
///
/// Kept are the outputs of NVIDIA's and AMD's run-time compilers and of Intel's compiler for Level Zero.
/// OpenCL's drivers keep what they build themselves. A kernel is found again if its source, the options, the
/// kind of device and the compiler's version are the same. A file that is cut short, damaged or foreign is
/// compiled again and replaced; so are files that cannot be read, and code that the driver refuses to load. A
/// folder that cannot be written, as in a read-only image, serves what is there. None of this is an error:
/// the log has a warning. Not compared are the version of Intel's compiler, which does not tell it, the
/// updates of one version of NVIDIA's (12.4), and files that a source includes. Remove the folder when one of
/// these has changed.
///
/// Any number of processes can use the folder at the same time.
///
/// Devices run the code in this folder. So nobody but the application's own user should be able to
/// write there; `enable` makes a new folder that way.
///
/// ```
/// use wakegraph_hal::KernelCache;
///
/// # fn main() -> wakegraph_hal::Result<()> {
/// # let folder = std::env::temp_dir().join("wakegraph-kernel-cache-example");
/// KernelCache::at(&folder).limit(64 << 20).enable()?;
/// # KernelCache::disable();
/// # std::fs::remove_dir_all(folder).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the cache is off until it is enabled"]
pub struct KernelCache {
    folder: PathBuf,
    limit: u64,
}

/// The cache that the process uses.
static ENABLED: RwLock<Option<Arc<EnabledCache>>> = RwLock::new(None);

impl KernelCache {
    /// A cache in this folder, with a [limit](Self::limit) of 256 MiB.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), limit: 256 << 20 }
    }

    /// A cache in the user's cache directory, in a folder `wakegraph`, which all applications of the user
    /// share.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if the process has no home directory, as some services.
    pub fn user() -> Result<Self> {
        let base = etcetera::base_strategy::choose_native_strategy().map_err(|error| {
            Error::new(ErrorKind::Unavailable, "there is no cache directory, as there is no home directory")
                .help("name a folder with `KernelCache::at`")
                .caused_by(error)
        })?;
        Ok(Self::at(base.cache_dir().join("wakegraph")))
    }

    /// Sets the most bytes that the folder has. Above, the kernels go that have not been used for the longest
    /// time. What other processes write counts when this one next looks for kernels to remove. A kernel of
    /// more than three quarters of the limit is not kept.
    pub fn limit(self, bytes: u64) -> Self {
        Self { limit: bytes, ..self }
    }

    /// Has all devices of the process use this cache from now on, in place of one that was enabled before.
    /// Makes the folder if it does not exist. A relative path starts at the directory that is current now.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if the folder cannot be made.
    pub fn enable(self) -> Result<()> {
        let made = std::path::absolute(&self.folder).and_then(|folder| make_folder(&folder).map(|()| folder));
        let folder = made.map_err(|error| {
            let why = format!("the folder {} of the kernel cache cannot be made", self.folder.display());
            Error::new(ErrorKind::Unavailable, why)
                .help("name a folder that the process can make, or make it before")
                .caused_by(error)
        })?;
        let options = Self { folder, ..self };
        let cache = EnabledCache::new(options);
        cache.bytes.store(cache.files().iter().map(|file| file.bytes).sum(), Relaxed);
        *ENABLED.write() = Some(Arc::new(cache));
        Ok(())
    }

    /// Returns whether the devices of the process use a cache.
    pub fn is_enabled() -> bool {
        ENABLED.read().is_some()
    }

    /// Has the devices of the process use no cache from now on. The files stay.
    pub fn disable() {
        *ENABLED.write() = None;
    }
}

/// The output of a compiler for this key: from the cache where one is enabled and has it, and from
/// `compile` otherwise; and which of the two. The key holds everything that the output depends on.
///
/// # Errors
/// Those of `compile`.
pub fn get_or_compile(
    key: &[&[u8]],
    compile: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<(Vec<u8>, CodeOrigin)> {
    if let Some(code) = find(key) {
        return Ok((code, CodeOrigin::Disk));
    }
    let code = compile()?;
    keep(key, &code);
    Ok((code, CodeOrigin::Compiled))
}

/// Returns the code that was [kept](keep) under a key, if a cache is enabled and has it.
pub fn find(key: &[&[u8]]) -> Option<Vec<u8>> {
    let cache = ENABLED.read().clone();
    cache?.find(key)
}

/// Keeps the output of a compiler, or what is known of one, if a cache is enabled.
pub fn keep(key: &[&[u8]], code: &[u8]) {
    let cache = ENABLED.read().clone();
    cache.into_iter().for_each(|cache| cache.keep(key, code));
}

/// Loads code. If the driver refuses code that this process has found on disk, loads what `compile_again`
/// makes of the refused code, which must not come from a cache of the process. Returns the code that is
/// loaded, too.
///
/// # Errors
/// The errors of `load` and of the compilation.
pub fn load_or_compile_again<C: AsRef<[u8]>, L>(
    code: C,
    load: impl Fn(&C) -> Result<L>,
    compile_again: impl FnOnce(&C) -> Result<C>,
) -> Result<(L, C)> {
    let error = match load(&code) {
        Ok(loaded) => return Ok((loaded, code)),
        Err(error) => error,
    };
    let cache = ENABLED.read().clone();
    if !cache.is_some_and(|cache| cache.is_refused(code.as_ref(), &error)) {
        return Err(error);
    }
    let code = compile_again(&code)?;
    Ok((load(&code)?, code))
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

struct EnabledCache {
    options: KernelCache,
    /// Bytes in the folder, as far as this process knows.
    bytes: AtomicU64,
    /// Whether the log has a warning about the folder already.
    has_warned: AtomicBool,
    /// The files that this process has found, by the digests of their code.
    found: Mutex<HashMap<u64, PathBuf>>,
    /// The digests of code that a driver refuses. In a folder that cannot be written, its files stay.
    refused: Mutex<HashSet<u64>>,
}

impl Debug for EnabledCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnabledCache").field("folder", &self.options.folder).finish_non_exhaustive()
    }
}

/// Beginning of every file; the number changes with the format.
const MAGIC: &[u8; 8] = b"wgkern-1";
/// Bytes before the code: the magic, and the digest of key and code.
const HEADER: usize = 16;
const EXTENSION: &str = "kernel";
/// Extension of files that are being written.
const UNFINISHED: &str = "unfinished";

/// A digest of these parts. A newer standard library may compute another one, which is then a miss.
fn digest(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// The digest of a file's contents. It has the key, too: a file under the name of another is damaged.
fn seal(key: &[&[u8]], code: &[u8]) -> [u8; 8] {
    digest(&[key, &[code]].concat()).to_le_bytes()
}

impl EnabledCache {
    fn new(options: KernelCache) -> Self {
        let (bytes, has_warned) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { options, bytes, has_warned, found: Mutex::default(), refused: Mutex::default() }
    }

    /// Whether code that a driver refuses with this error is that of a file. If so, the code is not used
    /// again. Every thread that has the code is told so, but only the first removes the file: after that it
    /// may be a new one.
    fn is_refused(&self, code: &[u8], error: &Error) -> bool {
        let says_nothing_of_code = matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::DeviceLost);
        let code = digest(&[code]);
        let path = self.found.lock().get(&code).cloned();
        let Some(path) = path.filter(|_| !says_nothing_of_code) else { return false };
        let mut refused = self.refused.lock();
        if refused.insert(code) {
            // Under the lock: another thread that has the code writes a new file only after this.
            fs::remove_file(&path).ok();
            drop(refused);
            tracing::warn!(target: "wakegraph", file = %path.display(), %error,
                "the driver refuses a compiled kernel on disk, so it is compiled again");
        }
        true
    }

    fn path(&self, key: &[&[u8]]) -> PathBuf {
        self.options.folder.join(format!("{:016x}.{EXTENSION}", digest(key)))
    }

    fn find(&self, key: &[&[u8]]) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut contents = match read(&path) {
            Ok(contents) => contents,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                self.warn(&path, &error, "a compiled kernel cannot be read, so it is compiled again");
                return None;
            }
        };
        let code = contents.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(HEADER - MAGIC.len()));
        if code.is_none_or(|(found, code)| found != seal(key, code)) {
            tracing::warn!(target: "wakegraph", file = %path.display(),
                "a compiled kernel on disk is damaged, so it is compiled again");
            return None;
        }
        contents.drain(..HEADER);
        let code = digest(&[&contents]);
        if self.refused.lock().contains(&code) {
            return None;
        }
        self.found.lock().insert(code, path);
        Some(contents)
    }

    fn keep(&self, key: &[&[u8]], code: &[u8]) {
        let added = (HEADER + code.len()) as u64;
        // It would remove all others, and then itself.
        if added > self.room() {
            return;
        }
        let path = self.path(key);
        if let Err(error) = write(&path, &[MAGIC, &seal(key, code), code]) {
            return self.warn(&path, &error, "a compiled kernel cannot be kept on disk");
        }
        if self.bytes.fetch_add(added, Relaxed) + added > self.options.limit {
            self.make_room(self.files());
        }
    }

    /// Bytes that stay when room is made for some more.
    fn room(&self) -> u64 {
        self.options.limit / 4 * 3
    }

    /// Removes those of the cache's files that have not been used for the longest time, until there is room
    /// for some more.
    fn make_room(&self, mut files: Vec<CacheFile>) {
        files.sort_by_key(|file| file.used);
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        for file in files {
            if bytes <= self.room() {
                break;
            }
            let is_gone = match fs::remove_file(&file.path) {
                Ok(()) => true,
                // Another process makes room, too.
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            };
            if is_gone {
                bytes -= file.bytes;
            }
        }
        self.bytes.store(bytes, Relaxed);
    }

    /// The files of caches, without those that are being written. Removes what a process that ended early has
    /// left unfinished.
    fn files(&self) -> Vec<CacheFile> {
        let Ok(entries) = fs::read_dir(&self.options.folder) else { return Vec::new() };
        let files = entries.flatten().filter_map(|entry| CacheFile::of(&entry)).collect::<Vec<_>>();
        let has = |file: &CacheFile, extension| file.path.extension().is_some_and(|found| found == extension);
        let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
        for left in files.iter().filter(|file| has(file, UNFINISHED) && file.used < an_hour_ago) {
            fs::remove_file(&left.path).ok();
        }
        files.into_iter().filter(|file| has(file, EXTENSION)).collect()
    }

    /// Warns the first time, as the same is true of the next kernels.
    fn warn(&self, path: &Path, error: &io::Error, what: &str) {
        if self.has_warned.swap(true, Relaxed) {
            tracing::debug!(target: "wakegraph", file = %path.display(), %error, "{what}");
        } else {
            tracing::warn!(target: "wakegraph", file = %path.display(), %error, "{what}");
        }
    }
}

struct CacheFile {
    path: PathBuf,
    bytes: u64,
    /// Time at which a process last found the kernel.
    used: SystemTime,
}

impl CacheFile {
    /// None for a file that no cache has made. The user may have others in the folder.
    fn of(entry: &fs::DirEntry) -> Option<Self> {
        let name = entry.file_name();
        let (digest, rest) = name.to_str()?.split_once('.')?;
        let is_digest = digest.len() == 16 && digest.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_digest || rest != EXTENSION && !rest.ends_with(UNFINISHED) {
            return None;
        }
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Self { path: entry.path(), bytes: metadata.len(), used: metadata.modified().ok()? })
    }
}

/// Reads a file, and notes that it has been used.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let to_note = OpenOptions::new().read(true).write(true).open(path);
    let mut file = to_note.or_else(|_| File::open(path))?;
    let mut contents = Vec::new();
    file.read_to_end(&mut contents)?;
    // A file of a read-only folder is as good.
    file.set_modified(SystemTime::now()).ok();
    Ok(contents)
}

/// The name of a file while it is written. No other write has it: processes in containers often have the same
/// id, and processes that were forked off have the random numbers of their parent.
fn unfinished(path: &Path) -> PathBuf {
    let number = RandomState::new().hash_one(std::process::id());
    path.with_extension(format!("{number:016x}.{UNFINISHED}"))
}

/// Writes a file under another name and renames it, so that no process sees a part of it.
fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    write_first(&unfinished(path), path, parts)
}

/// Writes a file under the name `unfinished` first.
fn write_first(unfinished: &Path, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    // A file that is there already is another writer's, and so is its removal.
    let mut file = File::create_new(unfinished)?;
    let written = parts.iter().try_for_each(|part| file.write_all(part));
    drop(file);
    let renamed = written.and_then(|()| fs::rename(unfinished, path));
    if renamed.is_err() {
        fs::remove_file(unfinished).ok();
    }
    renamed
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A cache in a folder of its own, which goes with it.
    struct TestCache(EnabledCache);

    impl TestCache {
        fn new(limit: u64) -> Self {
            static NUMBER: AtomicU64 = AtomicU64::new(0);
            let number = NUMBER.fetch_add(1, Relaxed);
            let name = format!("wakegraph-kernel-cache-{}-{number}", std::process::id());
            Self::at(&std::env::temp_dir().join(name), limit)
        }

        fn at(folder: &Path, limit: u64) -> Self {
            make_folder(folder).unwrap();
            let options = KernelCache::at(folder).limit(limit);
            Self(EnabledCache::new(options))
        }

        /// The code of this number, which is compiled if the cache does not have it. Says whether it had.
        fn get(&self, number: u64) -> bool {
            let (source, code) = (number.to_string(), code_of(number));
            let key: [&[u8]; 2] = [b"test", source.as_bytes()];
            match self.0.find(&key) {
                Some(found) => {
                    assert_eq!(found, code);
                    true
                }
                None => {
                    self.0.keep(&key, &code);
                    false
                }
            }
        }

        fn path(&self, number: u64) -> PathBuf {
            self.0.path(&[b"test", number.to_string().as_bytes()])
        }
    }

    impl Drop for TestCache {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0.options.folder).ok();
        }
    }

    fn code_of(number: u64) -> Vec<u8> {
        (0..100 + number % 50).map(|byte| (byte * (number + 3)) as u8).collect()
    }

    #[test]
    fn a_key_finds_its_code_and_no_other() {
        let cache = TestCache::new(1 << 20);
        assert_eq!([1, 2, 1, 2].map(|number| cache.get(number)), [false, false, true, true]);
        // The same bytes, divided in another way.
        assert_eq!(cache.0.find(&[b"tes", b"t1"]), None);
    }

    #[test]
    fn a_folder_without_a_name_is_refused() {
        // As from an environment variable that is empty: files would lie in the current directory.
        assert_eq!(KernelCache::at("").enable().unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn damaged_files_are_compiled_again() {
        let cache = TestCache::new(1 << 20);
        let mut random = 1u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        for round in 0..1000 {
            let number = round % 10;
            cache.get(number);
            let path = cache.path(number);
            let mut contents = fs::read(&path).unwrap();
            let at = below(contents.len() as u64) as usize;
            match below(4) {
                0 => contents.truncate(at),
                1 => contents[at] ^= 1 << below(8),
                2 => contents.insert(at, 0),
                _ => {
                    cache.get(number + 10);
                    contents = fs::read(cache.path(number + 10)).unwrap();
                }
            }
            fs::write(&path, contents).unwrap();
            assert!(!cache.get(number), "a damaged file was taken");
            assert!(cache.get(number), "it was not replaced");
        }
    }

    #[test]
    fn code_that_the_driver_refuses_is_compiled_again() {
        let (cache, key): (_, [&[u8]; 1]) = (TestCache::new(1 << 20), [b"stale"]);
        let error = |kind| Error::new(kind, "no image for this device");
        cache.0.keep(&key, b"old code");
        assert!(!cache.0.is_refused(b"old code", &error(ErrorKind::Driver)), "it was not found on disk");
        let found = cache.0.find(&key).unwrap();
        assert!(!cache.0.is_refused(&found, &error(ErrorKind::OutOfMemory)));
        assert!(!cache.0.is_refused(b"other code", &error(ErrorKind::Driver)));
        assert!(cache.0.is_refused(&found, &error(ErrorKind::Driver)));
        assert!(!cache.0.path(&key).exists());
        // As where the file cannot be removed.
        write(&cache.0.path(&key), &[MAGIC, &seal(&key, &found), &found]).unwrap();
        assert_eq!(cache.0.find(&key), None);
        cache.0.keep(&key, b"new code");
        assert_eq!(cache.0.find(&key).unwrap(), b"new code");
        // As on another thread that has loaded the old code, too.
        assert!(cache.0.is_refused(&found, &error(ErrorKind::Driver)));
        assert_eq!(cache.0.find(&key).unwrap(), b"new code");
    }

    #[test]
    fn refused_code_is_found_under_no_key() {
        let (cache, keys): (_, [[&[u8]; 1]; 2]) = (TestCache::new(1 << 20), [[b"one"], [b"other"]]);
        for key in &keys {
            cache.0.keep(key, b"old code");
            assert_eq!(cache.0.find(key).unwrap(), b"old code");
        }
        assert!(cache.0.is_refused(b"old code", &Error::new(ErrorKind::Driver, "no image for this device")));
        assert_eq!(keys.map(|key| cache.0.find(&key)), [None, None]);
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_no_error() {
        let cache = TestCache::new(1 << 20);
        fs::create_dir(cache.path(1)).unwrap();
        assert_eq!([cache.get(1), cache.get(1)], [false, false]);
        fs::remove_dir_all(&cache.0.options.folder).unwrap();
        assert_eq!([cache.get(2), cache.get(2)], [false, false]);
        assert!(cache.0.has_warned.load(Relaxed));
        fs::write(&cache.0.options.folder, "a file").unwrap();
        let error = cache.0.options.clone().enable().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        fs::remove_file(&cache.0.options.folder).unwrap();
    }

    #[test]
    fn processes_that_make_room_at_once_remove_no_more() {
        let mut cache = TestCache::new(1 << 20);
        for number in 0..8 {
            cache.get(number);
            let then = SystemTime::now() - Duration::from_secs(1000 - number);
            File::options().write(true).open(cache.path(number)).unwrap().set_modified(then).unwrap();
        }
        cache.0.options.limit = 4 * (HEADER as u64 + 150);
        let (first, second) = (cache.0.files(), cache.0.files());
        cache.0.make_room(first);
        let left = cache.0.files().len();
        assert!((1..8).contains(&left), "{left}");
        cache.0.make_room(second);
        assert_eq!(cache.0.files().len(), left);
    }

    #[test]
    fn a_kernel_without_room_removes_no_others() {
        let cache = TestCache::new(1000);
        cache.get(0);
        cache.0.keep(&[b"large"], &[0; 2000]);
        assert_eq!(cache.0.find(&[b"large"]), None);
        assert!(cache.get(0));
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let cache = TestCache::new(8 * (HEADER as u64 + 150));
        for number in 0..8 {
            cache.get(number);
            let then = SystemTime::now() - Duration::from_secs(1000 - number);
            File::options().write(true).open(cache.path(number)).unwrap().set_modified(then).unwrap();
        }
        assert!(cache.get(0), "it is used again");
        assert!((8..12).all(|number| !cache.get(number)));
        assert!(cache.path(0).exists() && cache.path(11).exists());
        assert!(!cache.path(1).exists() && !cache.path(2).exists());
        let bytes: u64 = cache.0.files().iter().map(|file| file.bytes).sum();
        assert!(bytes <= cache.0.options.limit);
    }

    #[test]
    fn unfinished_files_of_ended_processes_are_removed() {
        let cache = TestCache::new(1 << 20);
        let [old, new] = ["1.unfinished", "2.unfinished"].map(|end| cache.path(0).with_extension(end));
        // Somebody else's.
        let others = ["download.unfinished", "linux.kernel"].map(|name| cache.0.options.folder.join(name));
        let then = SystemTime::now() - Duration::from_secs(7200);
        for old in [&old, &others[0], &others[1]] {
            File::create(old).unwrap().set_modified(then).unwrap();
        }
        File::create(&new).unwrap();
        assert_eq!(cache.0.files().len(), 0);
        assert_eq!([old.exists(), new.exists()], [false, true]);
        assert!(others.iter().all(|other| other.exists()));
    }

    const FOLDER: &str = "WAKEGRAPH_TEST_KERNEL_CACHE";

    #[test]
    #[ignore = "runs in processes that the next test starts"]
    fn one_of_several_processes() {
        let folder = std::env::var_os(FOLDER).expect("the folder of the test that starts this process");
        // The folder belongs to the process that has started this one.
        let cache = std::mem::ManuallyDrop::new(TestCache::at(Path::new(&folder), 5000));
        for round in 0..2000 {
            cache.get(round % 64);
        }
    }

    #[test]
    fn a_file_that_another_process_writes_stays() {
        let cache = TestCache::new(1 << 20);
        let path = cache.path(1);
        let other = unfinished(&path);
        assert_ne!(other, unfinished(&path));
        fs::write(&other, "a part").unwrap();
        let error = write_first(&other, &path, &[b"mine"]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((fs::read(&other).unwrap(), path.exists()), (b"a part".to_vec(), false));
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts processes")]
    fn processes_share_a_folder() {
        let cache = TestCache::new(5000);
        let start = |_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "one_of_several_processes"])
                .env(FOLDER, &cache.0.options.folder)
                .output()
        };
        let threads: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || start(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
        });
        for child in threads {
            let text = String::from_utf8_lossy(&child.stdout);
            assert!(child.status.success() && text.contains("1 passed"), "{text}");
        }
        let left = fs::read_dir(&cache.0.options.folder).unwrap().flatten();
        assert!(
            left.map(|entry| entry.path())
                .all(|path| path.extension().is_some_and(|found| found == EXTENSION))
        );
    }
}
