//! The residual of each iteration as a PNG, on a logarithmic scale.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use png::{ColorType, Encoder, EncodingError};

const SIZE: (u32, u32) = (720, 440);
/// Left, top, right and bottom of the axes.
const AXES: [f32; 4] = [60.0, 20.0, 700.0, 400.0];
const WHITE: [u8; 3] = [255; 3];
const GRID: [u8; 3] = [220; 3];
const TEXT: [u8; 3] = [60; 3];
const CURVE: [u8; 3] = [20, 90, 190];
/// Pixels of a dot of the digits.
const DOT: u32 = 2;

/// Writes the curve of `residuals`, which begins with 1 before the first iteration.
pub(crate) fn write(path: &Path, residuals: &[f32]) -> Result<(), EncodingError> {
    let mut image = Image::new();
    let [left, top, right, bottom] = AXES;
    let exponents: Vec<f32> = residuals.iter().map(|residual| residual.max(1e-30).log10()).collect();
    let lowest = exponents.iter().fold(-1.0f32, |lowest, &exponent| lowest.min(exponent)).floor();
    let highest = exponents.iter().fold(0.0f32, |highest, &exponent| highest.max(exponent)).ceil();
    let x = |iteration: usize| left + (right - left) * iteration as f32 / residuals.len() as f32;
    let y = |exponent: f32| top + (bottom - top) * (highest - exponent) / (highest - lowest);

    for exponent in lowest as i32..=highest as i32 {
        let height = y(exponent as f32);
        image.line((left, height), (right, height), GRID);
        number(&mut image, &format!("1e{exponent}"), (left - 8.0, height - 5.0));
    }
    for iteration in (0..=residuals.len()).step_by(tick(residuals.len())) {
        image.line((x(iteration), top), (x(iteration), bottom), GRID);
        number(&mut image, &iteration.to_string(), (x(iteration) + 8.0, bottom + 10.0));
    }
    let points: Vec<_> = std::iter::once((left, y(0.0)))
        .chain(exponents.iter().enumerate().map(|(index, &exponent)| (x(index + 1), y(exponent))))
        .collect();
    for pair in points.windows(2) {
        // Two pixels thick.
        for shift in [0.0, 1.0] {
            let shifted = |(x, y): (f32, f32)| (x, y + shift);
            image.line(shifted(pair[0]), shifted(pair[1]), CURVE);
        }
    }
    image.save(path)
}

/// Rows of pixels.
struct Image(Vec<[u8; 3]>);

impl Image {
    fn new() -> Self {
        Self(vec![WHITE; (SIZE.0 * SIZE.1) as usize])
    }

    fn put(&mut self, x: u32, y: u32, colour: [u8; 3]) {
        if x < SIZE.0 && y < SIZE.1 {
            self.0[(y * SIZE.0 + x) as usize] = colour;
        }
    }

    /// Draws a straight line, a pixel in each column or row, whichever are more.
    fn line(&mut self, from: (f32, f32), to: (f32, f32), colour: [u8; 3]) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let steps = dx.abs().max(dy.abs()).ceil().max(1.0);
        for step in 0..=steps as u32 {
            let part = step as f32 / steps;
            self.put((from.0 + part * dx).round() as u32, (from.1 + part * dy).round() as u32, colour);
        }
    }

    fn save(&self, path: &Path) -> Result<(), EncodingError> {
        let mut encoder = Encoder::new(BufWriter::new(File::create(path)?), SIZE.0, SIZE.1);
        encoder.set_color(ColorType::Rgb);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(self.0.as_flattened())?;
        writer.finish()
    }
}

/// 1, 2 or 5 times a power of ten, so that there are at most ten lines.
fn tick(iterations: usize) -> usize {
    let powers = (0..).map(|power| 10usize.pow(power));
    powers.flat_map(|power| [power, 2 * power, 5 * power]).find(|tick| iterations / tick <= 10).unwrap_or(1)
}

/// Draws a number that ends at a place.
fn number(image: &mut Image, text: &str, (right, top): (f32, f32)) {
    let left = right as u32 - text.len() as u32 * 4 * DOT;
    for (index, character) in text.chars().enumerate() {
        for (row, bits) in rows(character).into_iter().enumerate() {
            for column in (0..3).filter(|column| bits >> (2 - column) & 1 == 1) {
                for (dx, dy) in (0..DOT).flat_map(|dx| (0..DOT).map(move |dy| (dx, dy))) {
                    let x = left + (index as u32 * 4 + column) * DOT + dx;
                    image.put(x, top as u32 + row as u32 * DOT + dy, TEXT);
                }
            }
        }
    }
}

/// A character of three by five dots.
fn rows(character: char) -> [u8; 5] {
    match character {
        '0' => [7, 5, 5, 5, 7],
        '1' => [2, 6, 2, 2, 7],
        '2' => [7, 1, 7, 4, 7],
        '3' => [7, 1, 7, 1, 7],
        '4' => [5, 5, 7, 1, 1],
        '5' => [7, 4, 7, 1, 7],
        '6' => [7, 4, 7, 5, 7],
        '7' => [7, 1, 1, 2, 2],
        '8' => [7, 5, 7, 5, 7],
        '9' => [7, 5, 7, 1, 7],
        '-' => [0, 0, 7, 0, 0],
        'e' => [7, 5, 7, 4, 7],
        _ => [0; 5],
    }
}
