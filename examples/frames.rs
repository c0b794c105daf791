//! A stream of frames over TCP: frames of different lengths come in, are worked on by the device, and go
//! back in their order. At most a few are in flight, and a client that reads slowly slows its own frames
//! down, not the server.
//!
//! `cargo run --release --example frames [-- host:0]`
//!
//! Server and client are one program here, and talk over the loopback interface. The server reads the next
//! frame only when fewer than `IN_FLIGHT` are on their way, so what it does not read fills the buffers of
//! TCP, until the client has to wait.
#![expect(unsafe_code, reason = "declares device code")]

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures::{Stream, TryStreamExt, stream};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use wakegraph::service::{ExecutablePool, SubmitEach};
use wakegraph::{BoxError, Device, Error, ErrorKind, Graph, HostBuffer, Range, Result};

wakegraph::kernel! {
    /// Each pixel becomes its opposite.
    fn invert(x: &mut [u8]) {
        each: |_, x| *x = 255 - *x,
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { "KERNEL(invert, (SLICE(u8, x))) { x[GLOBAL_ID(0)] = 255 - x[GLOBAL_ID(0)]; }" },
    }
}

/// The longest frame, in bytes.
const LONGEST: usize = 1 << 16;
/// Frames that the server has read and not yet answered, beside the one that it sends.
const IN_FLIGHT: usize = 3;
const FRAMES: usize = 200;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let device = match std::env::args().nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let name = format!("{device:?}");
    let pool = ExecutablePool::builder().device(&device, IN_FLIGHT).build(|slot| {
        let device = slot.device()?;
        let (frame, x) = (device.host_buffer(LONGEST)?, device.buffer(LONGEST)?);
        let mut graph = Graph::new(&device);
        graph.copy(&frame, &x);
        graph.launch(invert(&x), Range::linear(LONGEST));
        graph.copy(&x, &frame);
        Ok((graph.finalize()?, frame))
    });

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (reader, writer) = TcpStream::connect(listener.local_addr()?).await?.into_split();
    let (socket, _) = listener.accept().await?;
    let (most, (), ()) = tokio::try_join!(serve(socket, &pool), send(writer), receive(reader))?;
    println!("{name}: {FRAMES} frames, as a plain loop has them; at most {most} in flight");
    assert!(most <= IN_FLIGHT + 1, "{most} frames in flight");
    Ok(())
}

/// Answers frames until the client sends no more. Returns how many were in flight at most.
async fn serve(socket: TcpStream, pool: &ExecutablePool<HostBuffer<u8>>) -> Result<usize, BoxError> {
    socket.set_nodelay(true)?;
    let (reader, mut writer) = socket.into_split();
    let (in_flight, mut most) = (AtomicUsize::new(0), 0);
    let frames = frames(reader).inspect_ok(|_| _ = in_flight.fetch_add(1, Relaxed));
    let answers = frames.submit_each(pool, IN_FLIGHT, async |slot, frame| {
        let frame =
            frame.map_err(|error| Error::new(ErrorKind::InvalidArgument, "no frame").caused_by(error))?;
        slot.write().await[..frame.len()].copy_from_slice(&frame);
        slot.submit().cancel_on_drop().await?;
        // The answer is sent from the slot's buffer, and the slot is free again when it has been.
        Ok((slot.read().await, frame.len()))
    });
    let mut answers = pin!(answers);
    while let Some((answer, len)) = answers.try_next().await? {
        most = most.max(in_flight.load(Relaxed));
        write_frame(&mut writer, &answer[..len]).await?;
        in_flight.fetch_sub(1, Relaxed);
    }
    Ok(most)
}

/// The client's first half: sends as fast as the server reads.
async fn send(mut writer: OwnedWriteHalf) -> Result<(), BoxError> {
    for number in 0..FRAMES {
        write_frame(&mut writer, &frame(number)).await?;
    }
    Ok(())
}

/// The client's second half: checks the answers.
async fn receive(reader: OwnedReadHalf) -> Result<(), BoxError> {
    let mut answers = pin!(frames(reader));
    for number in 0..FRAMES {
        let answer = answers.try_next().await?.ok_or("an answer is missing")?;
        let expected: Vec<u8> = frame(number).iter().map(|pixel| 255 - pixel).collect();
        if answer != expected {
            return Err(format!("frame {number} is not what a plain loop makes of it").into());
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn frame(number: usize) -> Vec<u8> {
    (0..(number * 7_919) % LONGEST + 1).map(|i| (i + number) as u8).collect()
}

/// The frames that come in, until the other side closes the connection.
fn frames(reader: impl AsyncRead + Unpin) -> impl Stream<Item = io::Result<Vec<u8>>> {
    stream::try_unfold(BufReader::new(reader), async |mut reader| {
        let frame = read_frame(&mut reader).await?;
        Ok(frame.map(|frame| (frame, reader)))
    })
}

/// Reads a frame: its length in four bytes, the first one the most significant, and its bytes. `None` where
/// the connection ends before it.
async fn read_frame(reader: &mut BufReader<impl AsyncRead + Unpin>) -> io::Result<Option<Vec<u8>>> {
    if reader.fill_buf().await?.is_empty() {
        return Ok(None);
    }
    let len = reader.read_u32().await? as usize;
    if len == 0 || len > LONGEST {
        let why = format!("a frame of {len} bytes: they have 1 to {LONGEST}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut frame = vec![0; len];
    reader.read_exact(&mut frame).await?;
    Ok(Some(frame))
}

async fn write_frame(writer: &mut OwnedWriteHalf, frame: &[u8]) -> io::Result<()> {
    writer.write_u32(frame.len() as u32).await?;
    writer.write_all(frame).await
}
