//! Plain HTTP/1.1 over a connection that stays open: for the load, and for the services' calls of the stub.
//! It costs the clients little, so that the server is what is measured.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::shape::{after_call, first_word};

/// A request with its head.
pub(crate) fn request(body: &[u8]) -> Vec<u8> {
    let head = format!("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A client's connection.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends a request, or the beginning of one.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await
    }

    /// Waits for a response, and returns its status and its body.
    pub(crate) async fn receive(&mut self) -> Result<(u16, &[u8])> {
        self.received.clear();
        loop {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if let Some((status, body, end)) = head(&self.received)?
                && self.received.len() >= end
            {
                return Ok((status, &self.received[body..end]));
            }
        }
    }
}

/// The status of a response, and where its body begins and ends, once its head is there.
fn head(received: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    match (status, length) {
        (Some(status), Some(length)) => Ok(Some((status, end + 4, end + 4 + length))),
        _ => Err(Error::new(ErrorKind::InvalidData, head)),
    }
}

/// Serves at an address of its own.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    // All clients come at once.
    let listener = socket.listen(4096).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Serves the stub: a service that answers after 2 ms.
pub(crate) async fn serve_stub() -> SocketAddr {
    let handler = async |body: Bytes| {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Bytes::copy_from_slice(&after_call(first_word(&body)).to_ne_bytes())
    };
    serve(Router::new().route("/", post(handler))).await
}

/// A client of the stub, which keeps its connections.
pub(crate) struct Stub {
    address: SocketAddr,
    idle: Mutex<Vec<Connection>>,
}

impl Stub {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::new(Vec::new()) }
    }

    pub(crate) async fn ask(&self, word: u32) -> Result<u32> {
        let idle = self.idle.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => Connection::open(self.address).await?,
        };
        connection.send(&request(&word.to_ne_bytes())).await?;
        let (_, body) = connection.receive().await?;
        let word = first_word(body);
        self.idle.lock().push(connection);
        Ok(word)
    }
}
