//! One pixel of a PNG.
//!
//! Only what browsers write for a screenshot: eight bits a channel, colour with or without
//! transparency, not interlaced. Whatever else it may be is a fault, and the picture is a small one
//! that we asked for, so its size is bounded before a byte is unpacked.

use std::io::Read;

/// The most pixels that are unpacked.
pub const PIXELS_MAX: usize = 1 << 20;

/// Why it is not a picture that we can look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PngFault {
    /// It does not begin as a PNG.
    #[error("not a png: its first bytes are others")]
    Signature,
    /// It ends before it is complete.
    #[error("png ends inside {0}")]
    Short(&'static str),
    /// It is larger than what was asked for, or empty.
    #[error(
        "png of {width} x {height} pixels: at most {PIXELS_MAX} pixels are looked at, at least 1"
    )]
    Size {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// A kind that browsers do not write.
    #[error(
        "png with colour type {colour}, {depth} bits, interlacing {interlace}: only 8 bit colour is read"
    )]
    Kind {
        /// Its colour type.
        colour: u8,
        /// Bits of a channel.
        depth: u8,
        /// Its interlacing.
        interlace: u8,
    },
    /// Its packed rows are damaged.
    #[error("png rows do not unpack")]
    Packed,
    /// The pixel lies outside.
    #[error("png has no pixel at {0}, {1}")]
    Outside(u32, u32),
}

/// Red, green and blue of the pixel at `x`, `y` of `png`.
///
/// # Errors
/// See [`PngFault`].
pub fn pixel(png: &[u8], x: u32, y: u32) -> Result<[u8; 3], PngFault> {
    let rest = png
        .strip_prefix(b"\x89PNG\r\n\x1a\n")
        .ok_or(PngFault::Signature)?;
    let mut chunks = Chunks { rest };
    let Some((b"IHDR", header)) = chunks.next().transpose()? else {
        return Err(PngFault::Short("its header"));
    };
    let Some(
        &[
            w0,
            w1,
            w2,
            w3,
            h0,
            h1,
            h2,
            h3,
            depth,
            colour,
            _,
            _,
            interlace,
        ],
    ) = header.first_chunk::<13>()
    else {
        return Err(PngFault::Short("its header"));
    };
    let (width, height) = (
        u32::from_be_bytes([w0, w1, w2, w3]),
        u32::from_be_bytes([h0, h1, h2, h3]),
    );
    let depth_of = match (colour, depth, interlace) {
        (2, 8, 0) => 3,
        (6, 8, 0) => 4,
        _ => {
            return Err(PngFault::Kind {
                colour,
                depth,
                interlace,
            });
        }
    };
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 || pixels > PIXELS_MAX as u64 {
        return Err(PngFault::Size { width, height });
    }
    if x >= width || y >= height {
        return Err(PngFault::Outside(x, y));
    }
    let mut packed = Vec::new();
    for chunk in chunks {
        match chunk? {
            (b"IDAT", data) => packed.extend_from_slice(data),
            (b"IEND", _) => break,
            _ => {}
        }
    }
    let row_len = width as usize * depth_of;
    let wanted = (row_len + 1) * (y as usize + 1);
    let mut rows = Vec::new();
    let mut unpacking = flate2::read::ZlibDecoder::new(packed.as_slice()).take(wanted as u64);
    unpacking
        .read_to_end(&mut rows)
        .map_err(|_| PngFault::Packed)?;
    if rows.len() < wanted {
        return Err(PngFault::Short("its rows"));
    }
    let row = unfiltered(&rows, row_len, depth_of)?;
    let at = x as usize * depth_of;
    Ok([row[at], row[at + 1], row[at + 2]])
}

/// The last of `rows`: each was written as its difference to what lies left of and above it.
fn unfiltered(rows: &[u8], row_len: usize, step: usize) -> Result<Vec<u8>, PngFault> {
    let mut above = vec![0_u8; row_len];
    for row in rows.chunks_exact(row_len + 1) {
        let (filter, bytes) = (row[0], &row[1..]);
        let mut made = bytes.to_vec();
        for at in 0..row_len {
            let left = at.checked_sub(step).map_or(0, |left| made[left]);
            let corner = at.checked_sub(step).map_or(0, |left| above[left]);
            let guess = match filter {
                0 => 0,
                1 => left,
                2 => above[at],
                3 => u8::midpoint(left, above[at]),
                4 => paeth(left, above[at], corner),
                _ => return Err(PngFault::Packed),
            };
            made[at] = bytes[at].wrapping_add(guess);
        }
        above = made;
    }
    Ok(above)
}

fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let sum = i16::from(left) + i16::from(above) - i16::from(corner);
    let nearest = [left, above, corner];
    let mut best = left;
    for candidate in nearest {
        if (sum - i16::from(candidate)).abs() < (sum - i16::from(best)).abs() {
            best = candidate;
        }
    }
    best
}

struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<(&'a [u8; 4], &'a [u8]), PngFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let split = || {
            let (len, rest) = self.rest.split_first_chunk::<4>()?;
            let (name, rest) = rest.split_first_chunk::<4>()?;
            let (data, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
            let (_checksum, rest) = rest.split_first_chunk::<4>()?;
            Some((name, data, rest))
        };
        match split() {
            Some((name, data, rest)) => {
                self.rest = rest;
                Some(Ok((name, data)))
            }
            None => {
                self.rest = &[];
                Some(Err(PngFault::Short("a chunk")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_filter_is_undone() {
        // Two pixels in a row; every row says in its own way that all is 10, 20, 30 and 11, 22, 33.
        let rows: [&[u8]; 5] = [
            &[0, 10, 20, 30, 11, 22, 33],
            &[1, 10, 20, 30, 1, 2, 3],
            &[2, 0, 0, 0, 0, 0, 0],
            &[3, 5, 10, 15, 1, 1, 2],
            &[4, 0, 0, 0, 0, 0, 0],
        ];
        let png = picture(2, 2, &rows);
        for y in 0..5 {
            assert_eq!(pixel(&png, 0, y), Ok([10, 20, 30]), "row {y}");
            assert_eq!(pixel(&png, 1, y), Ok([11, 22, 33]), "row {y}");
        }
        assert_eq!(pixel(&png, 2, 0), Err(PngFault::Outside(2, 0)));
    }

    #[test]
    fn a_lie_about_the_size_unpacks_nothing() {
        let mut png = picture(2, 2, &[&[0; 7]]);
        png[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(pixel(&png, 0, 0), Err(PngFault::Size { .. })));
        assert_eq!(pixel(b"GIF89a", 0, 0), Err(PngFault::Signature));
    }

    proptest! {
        #[test]
        fn damage_is_told(at in 0_usize..80, with: u8, cut in 0_usize..80) {
            let mut png = picture(2, 2, &[&[0, 10, 20, 30, 11, 22, 33]]);
            let at = at % png.len();
            png[at] = with;
            png.truncate(png.len().saturating_sub(cut));
            let _ = pixel(&png, 0, 0);
        }
    }

    fn picture(width: u32, colour: u8, rows: &[&[u8]]) -> Vec<u8> {
        let mut header = [width.to_be_bytes(), (rows.len() as u32).to_be_bytes()].concat();
        header.extend([8, colour, 0, 0, 0]);
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&rows.concat()).unwrap();
        let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
        for (name, data) in [
            (b"IHDR", header),
            (b"IDAT", packed.finish().unwrap()),
            (b"IEND", Vec::new()),
        ] {
            png.extend((data.len() as u32).to_be_bytes());
            png.extend(name);
            png.extend(data);
            png.extend([0; 4]);
        }
        png
    }
}
