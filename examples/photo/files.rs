//! The two ends of the pipeline: PNG files, read and written without blocking a tokio worker.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use png::{
    BitDepth, ColorType, Compression, Decoder, DecodingError, Encoder, EncodingError, Transformations,
};
use tokio::task::spawn_blocking;
use wakegraph::{BoxError, HostMut, HostRef};

/// A camera: every frame is the same file, read and decoded again.
///
/// It pans from right to left, one pixel column a frame, so that no two frames in a row are the
/// same. The last frame shows the picture as it is in the file.
pub(crate) struct Source {
    path: PathBuf,
    size: (u32, u32),
    frames: u32,
    taken: AtomicU32,
}

impl Source {
    /// Reads the size of the picture; the pixels are for [`next`](Self::next).
    pub(crate) fn open(path: &Path, frames: u32) -> Result<Self, BoxError> {
        let file = File::open(path).map_err(|error| cannot("read", path, error))?;
        let header = Decoder::new(BufReader::new(file)).read_info();
        let size = header.map_err(|error| cannot("decode", path, error))?.info().size();
        Ok(Self { path: path.into(), size, frames, taken: AtomicU32::new(0) })
    }

    /// Width and height.
    pub(crate) fn size(&self) -> (u32, u32) {
        self.size
    }

    /// Fills `rgb` with the next frame: 3 bytes a pixel, whatever the file has. Transparency is ignored.
    pub(crate) async fn next(&self, mut rgb: HostMut<u8>) -> Result<(), BoxError> {
        let frame = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        let columns_to_go = self.frames.saturating_sub(frame) % self.size.0;
        let (size, path) = (self.size, self.path.clone());

        let png = tokio::fs::read(&path).await.map_err(|error| cannot("read", &path, error))?;
        spawn_blocking(move || {
            let picture = decode(Cursor::new(png)).map_err(|error| cannot("decode", &path, error))?;
            if picture.size != size {
                return Err(cannot("use", &path, "its size has changed"));
            }
            rgb.copy_from_slice(&picture.rgb);
            for row in rgb.chunks_exact_mut(3 * size.0 as usize) {
                row.rotate_left(3 * columns_to_go as usize);
            }
            Ok(())
        })
        .await?
    }
}

/// A file that every frame is written to, over the one before.
pub(crate) struct Sink {
    path: PathBuf,
    size: (u32, u32),
}

impl Sink {
    pub(crate) fn new(path: &Path, size: (u32, u32)) -> Self {
        Self { path: path.into(), size }
    }

    /// Writes `gray`, 1 byte a pixel.
    pub(crate) async fn write(&self, gray: HostRef<u8>) -> Result<(), BoxError> {
        let (width, height) = self.size;
        let png = spawn_blocking(move || encode_gray(&gray, width, height)).await??;
        tokio::fs::write(&self.path, png).await.map_err(|error| cannot("write", &self.path, error))
    }
}

/// A picture: 3 bytes a pixel.
pub(crate) struct Picture {
    /// Width and height.
    size: (u32, u32),
    pub(crate) rgb: Vec<u8>,
}

/// Reads a PNG.
pub(crate) fn read(path: &Path) -> Result<Picture, BoxError> {
    let file = File::open(path).map_err(|error| cannot("read", path, error))?;
    decode(BufReader::new(file)).map_err(|error| cannot("decode", path, error))
}

fn decode(png: impl BufRead + Seek) -> Result<Picture, DecodingError> {
    let mut decoder = Decoder::new(png);
    // Whatever the file has becomes 8 bits a channel.
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info()?;
    let mut pixels = vec![0; reader.output_buffer_size().ok_or(DecodingError::LimitsExceeded)?];
    let frame = reader.next_frame(&mut pixels)?;
    pixels.truncate(frame.buffer_size());
    let (channels, is_gray) = (frame.color_type.samples(), frame.color_type.samples() < 3);
    let colours = |pixel: &[u8]| if is_gray { [pixel[0]; 3] } else { [pixel[0], pixel[1], pixel[2]] };
    let rgb = pixels.chunks_exact(channels).flat_map(colours).collect();
    Ok(Picture { size: (frame.width, frame.height), rgb })
}

fn encode_gray(gray: &[u8], width: u32, height: u32) -> Result<Vec<u8>, EncodingError> {
    let mut png = Vec::new();
    let mut encoder = Encoder::new(&mut png, width, height);
    encoder.set_color(ColorType::Grayscale);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(gray)?;
    writer.finish()?;
    Ok(png)
}

/// An error that names the file.
pub(crate) fn cannot(verb: &str, path: &Path, why: impl Display) -> BoxError {
    format!("cannot {verb} {}: {why}", path.display()).into()
}
