//! Compiled kernels on disks that are damaged, full and shared: results stay right, and nothing is an error.
//!
//! A test that needs a file system of its own is ignored, by name, where the system mounts none.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use wakegraph_hal::support::kernel_cache::get_or_compile;
use wakegraph_hal::{CodeOrigin, KernelCache};

/// Set to the folder in processes that the first test starts.
const FOLDER: &str = "WAKEGRAPH_TEST_KERNEL_FOLDER";
const PROCESSES: u64 = 8;
/// Damages by each of them.
const DAMAGES: u64 = 125;
/// Different kernels.
const KERNELS: u64 = 10;

fn main() -> ExitCode {
    if let Some(folder) = std::env::var_os(FOLDER) {
        damage_and_compile(Path::new(&folder));
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("processes_that_damage_files_get_right_code", damaged_by_processes),
        Trial::ignorable_test("a_full_disk_is_no_error", full_disk),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Fails if anything is logged as an error; counts warnings.
struct NoErrors;

static WARNINGS: AtomicU64 = AtomicU64::new(0);

impl Subscriber for NoErrors {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert_ne!(*event.metadata().level(), Level::ERROR);
        if *event.metadata().level() == Level::WARN {
            WARNINGS.fetch_add(1, Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The code that a compiler makes of this kernel.
fn code_of(number: u64) -> Vec<u8> {
    (0..400 + number).map(|byte| (byte * (number + 3)) as u8).collect()
}

/// Gets the kernel's code through the cache, which has to be right. Returns where it comes from.
fn get(number: u64) -> CodeOrigin {
    let source = number.to_string();
    let (code, origin) =
        get_or_compile(&[b"test", source.as_bytes()], || Ok(code_of(number))).expect("no error");
    assert_eq!(code, code_of(number), "wrong code from {origin:?}");
    origin
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Damages a file of the folder. Other processes may do so, too, or replace it meanwhile.
fn damage(folder: &Path, random: &mut Random) {
    let files: Vec<_> = fs::read_dir(folder).unwrap().flatten().map(|file| file.path()).collect();
    if files.is_empty() {
        return;
    }
    let (file, other) = (&files[random.below(files.len())], &files[random.below(files.len())]);
    let mut contents = fs::read(file).unwrap_or_default();
    let at = random.below(contents.len().max(1));
    let _ = match random.below(7) {
        0 => fs::write(file, &contents[..at.min(contents.len())]),
        1 => {
            contents.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8));
            fs::write(file, contents)
        }
        2 => fs::copy(other, file).map(drop),
        3 => fs::remove_file(file),
        // Root may read it all the same.
        4 => without_permissions(file),
        5 => fs::remove_file(file).and_then(|()| fs::create_dir(file)),
        // So that the folder does not come to be full of folders.
        _ => fs::remove_dir(file),
    };
}

#[cfg(unix)]
fn without_permissions(file: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(file, fs::Permissions::from_mode(0o000))
}

#[cfg(not(unix))]
fn without_permissions(file: &Path) -> std::io::Result<()> {
    let mut permissions = fs::metadata(file)?.permissions();
    permissions.set_readonly(true);
    fs::set_permissions(file, permissions)
}

/// The work of one process.
fn damage_and_compile(folder: &Path) {
    tracing::subscriber::set_global_default(NoErrors).unwrap();
    KernelCache::at(folder).enable().unwrap();
    let mut random = Random(u64::from(std::process::id()));
    for _ in 0..DAMAGES {
        damage(folder, &mut random);
        (0..KERNELS).for_each(|number| _ = get(number));
    }
    assert!(WARNINGS.load(Relaxed) > 0, "nothing was found to be damaged");
}

fn damaged_by_processes() -> Result<(), Failed> {
    let folder = TestFolder::new("damaged");
    let start = || Command::new(std::env::current_exe().unwrap()).env(FOLDER, &folder.0).output().unwrap();
    let outputs: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PROCESSES).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for output in outputs {
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
    }
    Ok(())
}

/// A disk with room for a few kernels, behind a limit that is higher.
fn full_disk() -> Result<Completion, Failed> {
    let folder = TestFolder::new("full");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16k", "wakegraph-test"])
        .arg(&folder.0)
        .output();
    match mounted {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            return Ok(Completion::ignored_with(why.lines().next().unwrap_or("not mounted")));
        }
        Err(error) => return Ok(Completion::ignored_with(error.to_string())),
    }
    let full = std::panic::catch_unwind(|| tracing::subscriber::with_default(NoErrors, || fill(&folder.0)));
    KernelCache::disable();
    Command::new("umount").arg(&folder.0).status()?;
    match full {
        Ok(()) => Ok(Completion::Completed),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Keeps more kernels in the folder than there is room for.
fn fill(folder: &Path) {
    KernelCache::at(folder).enable().unwrap();
    (0..100).for_each(|number| _ = get(number));
    // What is there serves; the rest is compiled again.
    let origins: Vec<_> = (0..100).map(get).collect();
    for origin in [CodeOrigin::Disk, CodeOrigin::Compiled] {
        assert!(origins.contains(&origin), "nothing is {origin:?}");
    }
    assert_eq!(WARNINGS.load(Relaxed), 1, "the log has one line");
    let left = fs::read_dir(folder).unwrap().flatten();
    let left = left.filter(|file| file.path().extension().is_some_and(|end| end == "unfinished"));
    assert_eq!(left.count(), 0, "parts of files stay");
}

/// A folder that goes with this value.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Self {
        let name = format!("wakegraph-kernel-cache-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
