//! Profiling of a device that is switched on while it works.

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicU32, Ordering};

use wakegraph_hal::{Error, ErrorKind, Result};

use crate::runtime::resource::device::Device;

/// Number of profiled devices: submissions read this, and no more where there is none.
static PROFILED: AtomicU32 = AtomicU32::new(0);

/// Whether any device is profiled.
pub(crate) fn is_any_profiled() -> bool {
    PROFILED.load(Ordering::Relaxed) > 0
}

/// Has the runs on a device timed until it is dropped: [`Device::profile`].
#[must_use = "profiling ends when it is dropped"]
pub struct DeviceProfiling {
    device: Device,
}

impl Device {
    /// Has the device keep the times of partitions in the runs that are submitted from now on,
    /// until the guard is dropped. Executables need not be finalized again.
    ///
    /// The times are in [`Submission::profile`](crate::Submission::profile), and in
    /// [timelines](crate::timeline::Timeline). Those of nodes are not among them, unless the executable
    /// was finalized with [`profiling`](crate::FinalizeOptions::profiling).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = wakegraph::Device::open("host")?;
    /// # let mut graph = wakegraph::Graph::new(&device);
    /// # graph.fill(&device.buffer::<u32>(4)?, 1);
    /// # let exec = graph.finalize()?;
    /// let profiling = device.profile()?;
    /// let mut submission = exec.submit();
    /// (&mut submission).await?;
    /// let profile = submission.profile().expect("it was submitted while the device was profiled");
    /// assert!(profile.partitions[0].measured);
    /// drop(profiling); // later submissions have no times, and no cost of them
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// While it is on, a run of many short ones is launched by itself, not in a batch; on CUDA a
    /// driver event tells of its end in the place of a counter, and a node that counts is part of
    /// the time; on OpenCL the commands are enqueued one by one on a queue with profiling, in the
    /// place of a recorded command-buffer.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) on a device without
    /// [times](crate::capabilities::Capabilities::profiling).
    pub fn profile(&self) -> Result<DeviceProfiling> {
        if !self.capabilities().profiling {
            let error = Error::new(ErrorKind::FeatureNotSupported, "the device keeps no times of its work");
            return Err(error.on_device(self.selector()));
        }
        self.profilers().fetch_add(1, Ordering::Relaxed);
        PROFILED.fetch_add(1, Ordering::Relaxed);
        Ok(DeviceProfiling { device: self.clone() })
    }

    /// Whether runs that are submitted now are to be timed.
    pub(crate) fn is_profiled(&self) -> bool {
        is_any_profiled() && self.profilers().load(Ordering::Relaxed) > 0
    }
}

impl Drop for DeviceProfiling {
    fn drop(&mut self) {
        self.device.profilers().fetch_sub(1, Ordering::Relaxed);
        PROFILED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Debug for DeviceProfiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeviceProfiling").field(&self.device).finish()
    }
}
