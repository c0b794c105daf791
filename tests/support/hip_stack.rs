//! A version of HIP, and processes that run on it.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;

/// Names the test that a process is to run.
pub(crate) const CHILD: &str = "WAKEGRAPH_HIP_RAW";

/// How a test's process ends.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Well,
    /// By a signal, after it has printed this.
    Aborts(&'static str),
}

pub(crate) struct Stack {
    version: &'static str,
    /// What `scripts/hip.sh` has unpacked.
    libraries: PathBuf,
    /// The copy of this program, and what goes before AMD's libraries.
    copies: PathBuf,
}

impl Stack {
    /// Makes the copy; or says why this version cannot be used here.
    pub(crate) fn prepare(version: &'static str) -> Result<Self, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/hip").join(version);
        if !folder.join("complete").exists() {
            return Err(format!("no HIP {version}: scripts/hip.sh fetches it"));
        }
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let library = program.parent().unwrap().join("../examples/libhsa_runtime.so");
        if !library.exists() {
            return Err("`cargo test` builds the example hsa_runtime; --test does not".to_owned());
        }
        let copies = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let copies = copies.join(format!("hip-{version}-{}", std::process::id()));
        std::fs::create_dir_all(&copies).unwrap();
        for name in ["libhsa-runtime64.so.1", "libhiprtc.so"] {
            std::os::unix::fs::symlink(library.canonicalize().unwrap(), copies.join(name)).unwrap();
        }
        let stack = Self { version, libraries: folder.join("libs"), copies };
        std::fs::copy(program, stack.program()).unwrap();
        let mut patch = Command::new("patchelf");
        patch.arg("--set-interpreter").arg(folder.join("ld.so")).arg("--force-rpath").arg("--set-rpath");
        patch.arg(format!("{}:{}", stack.copies.display(), stack.libraries.display())).arg(stack.program());
        let patched = patch.status().map_err(|error| format!("patchelf: {error}"))?;
        patched.success().then_some(stack).ok_or_else(|| "patchelf failed".to_owned())
    }

    fn program(&self) -> PathBuf {
        self.copies.join("hip_raw")
    }

    pub(crate) fn run(&self, test: &str, environment: &[(&str, &str)], end: End) -> Result<(), Failed> {
        // Up to version 5, hipRTC is a part of the library.
        let hiprtc = match self.version.as_bytes()[0] {
            b'5' => "libamdhip64.so.5",
            _ => "libhiprtc.so.6",
        };
        let mut process = Command::new(self.program());
        // LLVM's search path of its own hides that of the program from the libraries which it
        // needs.
        process.env("LD_LIBRARY_PATH", &self.libraries);
        process.env(CHILD, test).env("WAKEGRAPH_HSA_HIPRTC", self.libraries.join(hiprtc));
        process.env("WAKEGRAPH_HSA_KERNELS", Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-kernels"));
        process.envs(environment.iter().copied());
        let output = process.output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        let as_expected = match end {
            End::Well => output.status.success(),
            End::Aborts(text) => output.status.signal().is_some() && printed.contains(text),
        };
        as_expected.then_some(()).ok_or_else(|| format!("{}\n{printed}", output.status).into())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.copies);
    }
}
