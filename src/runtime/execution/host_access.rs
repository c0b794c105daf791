//! Access to host buffers outside graphs: in the order of the submissions, and as a source or a sink of
//! bytes.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Poll, ready};

use bytemuck::Pod;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wakegraph_hal::{AccessMode, Result};

use crate::runtime::completion::tasks::take_turn;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::host_guard::{HostMut, HostRef, Lease};
use crate::runtime::execution::run::FenceHolder;
use crate::runtime::resource::host_buffer::HostBuffer;

impl<T: Pod> HostBuffer<T> {
    /// Reads: waits until no submission and no other guard writes the elements, then holds later
    /// writers off until the guard is dropped.
    ///
    /// Do not await a submission that writes the buffer while holding the guard: it waits for the guard.
    /// Its [progress](crate::Submission::progress) says so, and a [deadline](crate::SubmitBuilder::deadline)
    /// ends the wait.
    ///
    /// Where the driver of a lost device does not say whether its work has ended, such work may still use the
    /// elements. Then this never resolves, and an error in the log says so; [`try_read`](Self::try_read) and
    /// [`try_write`](Self::try_write) fail.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the order, nothing else.
    #[track_caller]
    pub fn read(&self) -> impl Future<Output = HostRef<T>> {
        let location = Location::caller();
        async move { HostRef::new(self.view(), self.acquire(AccessMode::Read, location).await) }
    }

    /// Writes: waits until no submission and no other guard uses the elements, then holds later
    /// users off until the guard is dropped.
    ///
    /// Do not await a submission that uses the buffer while holding the guard: it waits for the guard.
    /// Its [progress](crate::Submission::progress) says so, and a [deadline](crate::SubmitBuilder::deadline)
    /// ends the wait.
    ///
    /// Where the driver of a lost device does not say whether its work has ended, such work may still use the
    /// elements. Then this never resolves, and an error in the log says so; [`try_read`](Self::try_read) and
    /// [`try_write`](Self::try_write) fail.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the order, nothing else.
    #[track_caller]
    pub fn write(&self) -> impl Future<Output = HostMut<T>> {
        let location = Location::caller();
        async move { HostMut::new(self.view(), self.acquire(AccessMode::ReadWrite, location).await) }
    }

    /// Reads without waiting.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) while a submission or a guard may write
    /// the elements; [`DeviceLost`](crate::ErrorKind::DeviceLost) if a lost device may still do so.
    #[track_caller]
    pub fn try_read(&self) -> Result<HostRef<T>> {
        Ok(HostRef::new(self.view(), self.try_acquire(AccessMode::Read)?))
    }

    /// Writes without waiting.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) while a submission or a guard may use the
    /// elements; [`DeviceLost`](crate::ErrorKind::DeviceLost) if a lost device may still do so.
    #[track_caller]
    pub fn try_write(&self) -> Result<HostMut<T>> {
        Ok(HostMut::new(self.view(), self.try_acquire(AccessMode::ReadWrite)?))
    }

    fn holder(&self, mode: AccessMode, location: &'static Location<'static>) -> FenceHolder {
        let kind =
            if mode.writes() { "a `HostMut` of the host buffer" } else { "a `HostRef` of the host buffer" };
        FenceHolder::of(self.view(), kind, Some(location))
    }

    async fn acquire(&self, mode: AccessMode, location: &'static Location<'static>) -> Lease {
        let mut guard = conflicts::acquire(self.view(), mode, self.holder(mode, location));
        if let Err(error) = guard.turn().await {
            tracing::error!(
                target: "wakegraph",
                %error,
                "a guard is never granted: a lost device may still use the host buffer"
            );
            pending::<()>().await;
        }
        take_turn().await;
        Lease::Fence { _guard: guard }
    }

    #[track_caller]
    fn try_acquire(&self, mode: AccessMode) -> Result<Lease> {
        let holder = self.holder(mode, Location::caller());
        Ok(Lease::Fence { _guard: conflicts::try_acquire(self.view(), mode, holder)? })
    }
}

impl<T: Pod> HostMut<T> {
    /// Reads from a socket, say, straight into the elements, until they are full or the reader
    /// ends. Gives the number of bytes, which is that of all elements unless the reader has ended
    /// before. Bytes behind them stay as they are.
    ///
    /// ```
    /// # use tokio::io::AsyncWriteExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = wakegraph::Device::open("host")?;
    /// # let (mut peer, mut socket) = tokio::io::duplex(64);
    /// # peer.write_all(bytemuck::cast_slice(&[1.5f32, 2.5, 3.5])).await?;
    /// # drop(peer);
    /// let input = device.host_buffer::<f32>(1024)?;
    /// let bytes = input.write().await.read_from(&mut socket).await?;
    /// # assert_eq!(input.read().await[..4], [1.5, 2.5, 3.5, 0.0]);
    /// let received = input.slice(..bytes / size_of::<f32>())?;
    /// assert_eq!(received.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The reader's.
    ///
    /// # Cancel safety
    /// Not cancel safe: what has been read is in the elements, but not known. A loop over
    /// `tokio::io::AsyncReadExt::read_buf(&mut rest)` with `let mut rest = &mut guard[..]` of bytes is: each
    /// call shortens `rest` by what it has read.
    pub async fn read_from<R: AsyncRead + Unpin + ?Sized>(&mut self, reader: &mut R) -> io::Result<usize> {
        let mut bytes = ReadBuf::new(bytemuck::cast_slice_mut(self));
        poll_fn(|context| {
            loop {
                let so_far = bytes.filled().len();
                if bytes.remaining() == 0 {
                    return Poll::Ready(Ok(so_far));
                }
                ready!(Pin::new(&mut *reader).poll_read(context, &mut bytes))?;
                if bytes.filled().len() == so_far {
                    return Poll::Ready(Ok(so_far));
                }
            }
        })
        .await
    }

    /// The guard of the same memory as bytes.
    pub fn into_bytes(self) -> HostMut<u8> {
        self.into_bytes_guard()
    }
}

impl<T: Pod> HostRef<T> {
    /// Writes all elements to a socket, say, straight from the buffer. Does not flush the writer.
    ///
    /// # Errors
    /// The writer's; [`WriteZero`](io::ErrorKind::WriteZero) when it takes no more.
    ///
    /// # Cancel safety
    /// Not cancel safe: how much has been written is not known then. A loop over
    /// `tokio::io::AsyncWriteExt::write_buf(&mut rest)` with `let mut rest = &guard[..]` of bytes
    /// is: each call shortens `rest` by what it has written.
    pub async fn write_to<W: AsyncWrite + Unpin + ?Sized>(&self, writer: &mut W) -> io::Result<()> {
        let mut rest: &[u8] = bytemuck::cast_slice(self);
        poll_fn(|context| {
            while !rest.is_empty() {
                let written = ready!(Pin::new(&mut *writer).poll_write(context, rest))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                rest = rest.get(written..).unwrap_or_default();
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// The guard of the same memory as bytes: what `bytes::Bytes::from_owner` takes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = wakegraph::Device::open("host")?;
    /// let output = device.host_buffer::<f32>(1024)?;
    /// let body = bytes::Bytes::from_owner(output.read().await.into_bytes());
    /// assert_eq!(body.len(), 4096);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_bytes(self) -> HostRef<u8> {
        self.into_bytes_guard()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    use crate::Device;

    fn device() -> Device {
        Device::from_hal(FakeDevice::open(FakeOptions::new()).0)
    }

    #[tokio::test]
    async fn a_reader_fills_the_elements() {
        let buffer = device().host_buffer::<u32>(4).unwrap();
        // Less than an element at a time.
        let (mut peer, mut socket) = duplex(3);
        let sent = tokio::spawn(async move {
            peer.write_all(&(1..=20).collect::<Vec<u8>>()).await.unwrap();
        });
        assert_eq!(buffer.write().await.read_from(&mut socket).await.unwrap(), 16);
        let guard = buffer.read().await.into_bytes();
        assert_eq!(guard[..], (1..=16).collect::<Vec<u8>>());
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, [17, 18, 19, 20]);
        sent.await.unwrap();
    }

    #[tokio::test]
    async fn a_reader_may_end_early() {
        let buffer = device().host_buffer::<u16>(4).unwrap();
        buffer.write().await.fill(0xFFFF);
        let mut read = buffer.write().await;
        assert_eq!(read.read_from(&mut &[1u8, 2, 3][..]).await.unwrap(), 3);
        assert_eq!(read.into_bytes()[..], [1, 2, 3, 255, 255, 255, 255, 255]);
    }

    #[tokio::test]
    async fn all_elements_are_written() {
        let buffer = device().host_buffer_from(&[0x0201u16, 0x0403, 0x0605]).unwrap();
        let (mut peer, mut socket) = duplex(1);
        let guard = buffer.read().await;
        let (mut received, written) = (vec![0; 6], guard.write_to(&mut socket));
        tokio::join!(async { peer.read_exact(&mut received).await.unwrap() }, async {
            written.await.unwrap();
        });
        assert_eq!(received, *guard.into_bytes());
    }

    #[tokio::test]
    async fn a_writer_may_refuse() {
        let buffer = device().host_buffer_from(&[1u8; 10]).unwrap();
        let guard = buffer.read().await;
        let error = guard.write_to(&mut std::io::Cursor::new(&mut [0u8; 4][..])).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WriteZero);
    }

    #[tokio::test]
    async fn read_buf_knows_how_much_a_cancelled_read_has_read() {
        let buffer = device().host_buffer::<u8>(8).unwrap();
        let (mut peer, mut socket) = duplex(64);
        let mut guard = buffer.write().await;
        let mut rest = &mut guard[..];
        peer.write_all(&[1, 2, 3]).await.unwrap();
        assert_eq!(socket.read_buf(&mut rest).await.unwrap(), 3);
        assert!(socket.read_buf(&mut rest).now_or_never().is_none());
        peer.write_all(&[4, 5]).await.unwrap();
        assert_eq!(socket.read_buf(&mut rest).await.unwrap(), 2);
        assert_eq!(rest.len(), 3);
        assert_eq!(guard[..], [1, 2, 3, 4, 5, 0, 0, 0]);
    }

    #[tokio::test]
    async fn bytes_hold_the_buffer() {
        let buffer = device().host_buffer_from(&[1u32, 2]).unwrap();
        let bytes = bytes::Bytes::from_owner(buffer.read().await.into_bytes());
        let start = bytes.slice(..4);
        drop(bytes);
        assert!(buffer.try_write().is_err());
        assert_eq!(start, bytemuck::bytes_of(&1u32));
        drop(start);
        buffer.try_write().unwrap();
    }
}
