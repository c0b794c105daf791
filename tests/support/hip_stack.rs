//! AMD's own HIP library, in a version that `scripts/hip.sh` has fetched, over the HSA runtime of
//! `crates/wakegraph-hip/tests/hsa_runtime`: for copies of the test program, which have the dynamic linker
//! and the libraries of that version.

use std::path::{Path, PathBuf};
use std::process::Command;

#[allow(dead_code, reason = "each test binary uses its part")]
pub(crate) const VERSIONS: [&str; 2] = ["6.4.3", "5.7.1"];

/// What lies in front of AMD's libraries.
#[allow(dead_code, reason = "each test binary uses its part")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InFront {
    /// The HSA runtime, and a run-time compiler that compiles for the host, too.
    Kernels,
    /// Besides, a library that notes the calls of HIP, and makes them fail.
    Calls,
    /// The HSA runtime; and files that are no libraries, in the place of the run-time compiler.
    NoCompiler,
    /// Nothing: AMD's own HSA runtime, which finds no device.
    Nothing,
}

pub(crate) struct HipStack {
    version: &'static str,
    /// AMD's.
    libraries: PathBuf,
    /// The copy of this program, and what goes before AMD's libraries.
    copies: PathBuf,
}

impl HipStack {
    /// Says why this version cannot be used here, if it cannot.
    pub(crate) fn check(version: &str) -> Result<(), String> {
        if !Self::folder(version).join("complete").exists() {
            return Err(format!("no HIP {version}: scripts/hip.sh fetches it"));
        }
        for library in ["hsa_runtime", "hip_calls"] {
            if !Self::built(library)?.exists() {
                return Err(format!("`cargo test` builds the example {library}; --test does not"));
            }
        }
        Ok(())
    }

    /// What the script has unpacked.
    fn folder(version: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/hip").join(version)
    }

    /// A library that cargo builds beside the tests.
    fn built(library: &str) -> Result<PathBuf, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok(program.parent().unwrap().join(format!("../examples/lib{library}.so")))
    }

    /// Makes the copy; or says why this version cannot be used here.
    #[allow(dead_code, reason = "each test binary uses its part")]
    pub(crate) fn prepare(version: &'static str) -> Result<Self, String> {
        Self::prepare_with(version, InFront::Kernels)
    }

    /// As [`prepare`](Self::prepare), with this in front of AMD's libraries.
    pub(crate) fn prepare_with(version: &'static str, in_front: InFront) -> Result<Self, String> {
        Self::check(version)?;
        let folder = Self::folder(version);
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let copies = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let copies = copies.join(format!("hip-{version}-{in_front:?}-{}", std::process::id()));
        std::fs::create_dir_all(&copies).unwrap();
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, copies.join(name)).unwrap();
        let (hsa, calls) = (Self::built("hsa_runtime")?, Self::built("hip_calls")?);
        let (hsa, calls) = (hsa.canonicalize().unwrap(), calls.canonicalize().unwrap());
        // The crate prefers the compiler of the driver's version, tests take any.
        let link_compiler = || {
            link(&hsa, "libhiprtc.so");
            link(&hsa, &format!("libhiprtc.so.{}", &version[..1]));
        };
        match in_front {
            InFront::Nothing => {
                let amd = folder.join("amd-hsa/usr/lib/x86_64-linux-gnu");
                let libraries = ["libhsa-runtime64.so.1", "libhsakmt.so.1"];
                libraries.into_iter().for_each(|name| link(&amd.join(name), name));
            }
            InFront::Kernels => link_compiler(),
            InFront::Calls => {
                link_compiler();
                link(&calls, "libamdhip64.so");
            }
            InFront::NoCompiler => {
                for name in ["libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5"] {
                    std::fs::write(copies.join(name), "no library").unwrap();
                }
            }
        }
        if in_front != InFront::Nothing {
            link(&hsa, "libhsa-runtime64.so.1");
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
        self.copies.join("program")
    }

    /// Starts the copy.
    pub(crate) fn command(&self) -> Command {
        // Up to version 5, hipRTC is a part of the library.
        let (hip, hiprtc) = match self.version.as_bytes()[0] {
            b'5' => ("libamdhip64.so.5", "libamdhip64.so.5"),
            _ => ("libamdhip64.so.6", "libhiprtc.so.6"),
        };
        let mut process = Command::new(self.program());
        // LLVM's search path of its own hides that of the program from the libraries which it
        // needs.
        process.env("LD_LIBRARY_PATH", &self.libraries);
        process.env("WAKEGRAPH_HSA_HIP", self.libraries.join(hip));
        process.env("WAKEGRAPH_HSA_HIPRTC", self.libraries.join(hiprtc));
        process.env("WAKEGRAPH_HSA_KERNELS", Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-kernels"));
        process
    }
}

impl Drop for HipStack {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.copies);
    }
}
