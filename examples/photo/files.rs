//! The two ends of the pipeline: PNG files, read and written without blocking a tokio worker.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use image::codecs::png::{CompressionType, FilterType, PngDecoder, PngEncoder};
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder};
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
        let png = PngDecoder::new(BufReader::new(file)).map_err(|error| cannot("decode", path, error))?;
        Ok(Self { path: path.into(), size: png.dimensions(), frames, taken: AtomicU32::new(0) })
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
            let decoded = PngDecoder::new(Cursor::new(png)).and_then(DynamicImage::from_decoder);
            let picture = decoded.map_err(|error| cannot("decode", &path, error))?.into_rgb8();
            if picture.dimensions() != size {
                return Err(cannot("use", &path, "its size has changed"));
            }
            rgb.copy_from_slice(&picture);
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
        let png = spawn_blocking(move || {
            let mut png = Vec::new();
            PngEncoder::new_with_quality(&mut png, CompressionType::Fast, FilterType::NoFilter)
                .write_image(&gray, width, height, ExtendedColorType::L8)
                .map(|()| png)
        })
        .await??;
        tokio::fs::write(&self.path, png).await.map_err(|error| cannot("write", &self.path, error))
    }
}

/// An error that names the file.
pub(crate) fn cannot(verb: &str, path: &Path, why: impl Display) -> BoxError {
    format!("cannot {verb} {}: {why}", path.display()).into()
}
