//! The error type of wakegraph: what went wrong, where, and whose fault it is.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// The result of calls of wakegraph and its backends.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a user's own code, as a host task returns it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The error of wakegraph: what went wrong, and in which node, partition and device.
///
/// Cheap to clone: everyone who awaits a failed submission gets the same error. [`kind`](Self::kind)
/// says what happened, [`fault`](Self::fault) whose fault it is, and
/// [`source`](std::error::Error::source) what caused it.
///
/// ```
/// use wakegraph::{Device, ErrorKind, Fault, Graph};
///
/// # fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let (x, y) = (device.buffer::<u32>(2)?, device.buffer::<u32>(3)?);
/// let mut graph = Graph::new(&device);
/// graph.copy(&x, &y); // the lengths differ
///
/// let error = graph.finalize().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidSize);
/// assert_eq!(error.fault(), Fault::Caller);
/// println!("{error}"); // names the node, and the line that added it
/// # Ok(())
/// # }
/// ```
#[derive(Clone, thiserror::Error)]
#[error(transparent)]
pub struct Error(Arc<ErrorInner>);

/// The kind of an [`Error`]: what happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call is not allowed in this state (finalize twice, update of a buffer that is not updatable, ...).
    InvalidOperation,
    /// An argument is wrong: a foreign node or event, a kernel argument of the wrong kind, buffers
    /// that alias.
    InvalidArgument,
    /// A size, offset, pitch or pattern is wrong.
    InvalidSize,
    /// The edge would close a cycle.
    Cycle,
    /// A sync-point of another command-buffer, or one that does not exist.
    InvalidSyncPoint,
    /// An event that this queue cannot wait for.
    InvalidWaitList,
    /// A command handle of another command-buffer, or not a kernel's.
    InvalidCommandHandle,
    /// The device cannot do this; the command is named.
    FeatureNotSupported,
    /// A library, driver or device is missing.
    Unavailable,
    /// The device or the host has no memory left for this.
    OutOfMemory,
    /// The device is gone, with everything on it.
    DeviceLost,
    /// A driver call failed with a code of the vendor's.
    Driver,
    /// A host task, or other code of the user's, returned an error; it is the
    /// [`source`](std::error::Error::source).
    HostTaskFailed,
    /// A host task panicked.
    HostTaskPanicked,
    /// A kernel that runs as a Rust closure panicked, or the closure of a kernel's bound did.
    KernelPanicked,
    /// The closure of a native command or of a stream task panicked.
    NativePanicked,
    /// More requests wait than can be served; this one was refused at once. Try again later.
    Overloaded,
    /// The submission was cancelled, or its tokio runtime shut down before it had ended.
    Cancelled,
    /// The deadline of the submission passed before this could start.
    DeadlineExceeded,
    /// The submission had not ended in the time that its watchdog gives it. It goes on.
    Stalled,
    /// A fault in wakegraph. Please report it.
    Bug,
}

/// The party whose fault an error is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// The caller: the call is wrong, or the caller's own code failed.
    Caller,
    /// The owner of the machine: retry, free memory, install a driver, or open another device.
    Environment,
    /// The authors of wakegraph.
    Bug,
}

#[derive(Clone, Debug)]
struct ErrorInner {
    kind: ErrorKind,
    message: String,
    node: Option<String>,
    partition: Option<u32>,
    command: Option<u32>,
    executable: Option<Arc<str>>,
    device: Option<String>,
    location: Option<&'static Location<'static>>,
    help: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync + 'static>>,
}

impl Error {
    /// Creates an error. The message says what was wrong, without the place: callers add that as they
    /// pass the error on.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(ErrorInner {
            kind,
            message: message.into(),
            node: None,
            partition: None,
            command: None,
            executable: None,
            device: None,
            location: None,
            help: None,
            source: None,
        }))
    }

    /// The kind of the error: what happened.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The party whose fault it is.
    pub fn fault(&self) -> Fault {
        use ErrorKind as K;
        match self.0.kind {
            K::InvalidOperation
            | K::InvalidArgument
            | K::InvalidSize
            | K::Cycle
            | K::InvalidSyncPoint
            | K::InvalidWaitList
            | K::InvalidCommandHandle
            | K::FeatureNotSupported
            | K::HostTaskFailed
            | K::HostTaskPanicked
            | K::KernelPanicked
            | K::NativePanicked
            | K::Cancelled => Fault::Caller,
            K::Unavailable
            | K::OutOfMemory
            | K::DeviceLost
            | K::Driver
            | K::DeadlineExceeded
            | K::Stalled
            | K::Overloaded => Fault::Environment,
            K::Bug => Fault::Bug,
        }
    }

    /// The description of the fault, without node, device or remedy.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The node it happened in, as the graph names it.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// The partition it happened in.
    pub fn partition(&self) -> Option<u32> {
        self.0.partition
    }

    /// The executable it happened in, if that has a name.
    pub fn executable(&self) -> Option<&str> {
        self.0.executable.as_deref()
    }

    /// The command of a command-buffer that failed, counting appends from 0, where the backend knows.
    pub fn command(&self) -> Option<u32> {
        self.0.command
    }

    /// The device it happened on.
    pub fn device(&self) -> Option<&str> {
        self.0.device.as_deref()
    }

    /// Names the node, unless it is known already.
    #[must_use]
    pub fn in_node(self, node: impl Into<String>) -> Self {
        self.with(|inner| {
            inner.node.get_or_insert_with(|| node.into());
        })
    }

    /// Names the command of a command-buffer that failed, counting appends from 0, unless it is
    /// known already.
    #[must_use]
    pub fn at_command(self, command: u32) -> Self {
        self.with(|inner| {
            inner.command.get_or_insert(command);
        })
    }

    /// Names the partition, unless it is known already.
    #[must_use]
    pub fn in_partition(self, partition: u32) -> Self {
        self.with(|inner| {
            inner.partition.get_or_insert(partition);
        })
    }

    /// Names the executable, unless it is known already.
    #[must_use]
    pub fn in_executable(self, name: &Arc<str>) -> Self {
        self.with(|inner| {
            inner.executable.get_or_insert_with(|| Arc::clone(name));
        })
    }

    /// Names the device, unless it is known already.
    #[must_use]
    pub fn on_device(self, device: impl Into<String>) -> Self {
        self.with(|inner| {
            inner.device.get_or_insert_with(|| device.into());
        })
    }

    /// Adds the place in the user's source, unless it is known already.
    #[must_use]
    pub fn at(self, location: &'static Location<'static>) -> Self {
        self.with(|inner| {
            inner.location.get_or_insert(location);
        })
    }

    /// Adds advice on what to do about it.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        self.with(|inner| inner.help = Some(help.into()))
    }

    /// Appends a note to the message.
    #[must_use]
    pub fn with_note(self, note: &str) -> Self {
        self.with(|inner| {
            inner.message.push_str(", ");
            inner.message.push_str(note);
        })
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(self, source: impl Into<BoxError>) -> Self {
        self.with(|inner| inner.source = Some(Arc::from(source.into())))
    }

    /// The failure of a closure of the user's, which `error` has returned. A closure cannot say that the
    /// device is lost, for the backends and the runtime believe the driver only: work in flight on a lost
    /// device counts as ended. Its error may come from another device or library.
    pub fn of_closure(error: Self, why: impl Into<String>) -> Self {
        let kind = match error.kind() {
            ErrorKind::DeviceLost => ErrorKind::Driver,
            kind => kind,
        };
        Self::new(kind, why).caused_by(error)
    }

    /// Returns the cause, if this is the last reference to the error.
    pub fn into_source(self) -> Option<Arc<dyn std::error::Error + Send + Sync>> {
        Arc::into_inner(self.0).and_then(|inner| inner.source)
    }

    /// Takes the cause out.
    pub fn take_source(&mut self) -> Option<Arc<dyn std::error::Error + Send + Sync>> {
        Arc::make_mut(&mut self.0).source.take()
    }

    fn with(mut self, change: impl FnOnce(&mut ErrorInner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl fmt::Display for ErrorInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        let mut separator = " [";
        let mut place = |f: &mut fmt::Formatter<'_>, what: fmt::Arguments<'_>| {
            let written = write!(f, "{separator}{what}");
            separator = ", ";
            written
        };
        if let Some(node) = &self.node {
            place(f, format_args!("{node}"))?;
        }
        if let Some(partition) = self.partition {
            place(f, format_args!("partition {partition}"))?;
        }
        if let Some(executable) = &self.executable {
            place(f, format_args!("of '{executable}'"))?;
        }
        if let Some(device) = &self.device {
            place(f, format_args!("on {device}"))?;
        }
        if let Some(location) = self.location {
            place(f, format_args!("added at {location}"))?;
        }
        if separator == ", " {
            f.write_str("]")?;
        }
        if let Some(help) = &self.help {
            write!(f, "; {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ErrorInner {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

impl fmt::Debug for Error {
    // `fn main() -> wakegraph::Result<()>` prints errors with Debug, which should show the message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidOperation => "invalid operation",
            Self::InvalidArgument => "invalid argument",
            Self::InvalidSize => "invalid size",
            Self::Cycle => "cycle",
            Self::InvalidSyncPoint => "invalid sync-point",
            Self::InvalidWaitList => "invalid wait list",
            Self::InvalidCommandHandle => "invalid command handle",
            Self::FeatureNotSupported => "feature not supported",
            Self::Unavailable => "unavailable",
            Self::OutOfMemory => "out of memory",
            Self::DeviceLost => "device lost",
            Self::Driver => "driver error",
            Self::HostTaskFailed => "host task failed",
            Self::HostTaskPanicked => "host task panicked",
            Self::KernelPanicked => "kernel panicked",
            Self::NativePanicked => "native command panicked",
            Self::Overloaded => "overloaded",
            Self::Cancelled => "cancelled",
            Self::DeadlineExceeded => "deadline exceeded",
            Self::Stalled => "stalled",
            Self::Bug => "bug in wakegraph",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_message_names_the_fault_the_place_and_the_advice() {
        let error = Error::new(ErrorKind::HostTaskFailed, "the closure returned an error")
            .caused_by("connection refused")
            .in_node("host task 'post' (#3)")
            .in_node("ignored: the inner layer knows better")
            .in_partition(1)
            .on_device("host:0")
            .help("retry");
        assert_eq!(
            error.to_string(),
            "host task failed: the closure returned an error: connection refused \
             [host task 'post' (#3), partition 1, on host:0]; retry"
        );
        assert_eq!(error.source().unwrap().to_string(), "connection refused");
        assert_eq!(error.fault(), Fault::Caller);
    }
}
