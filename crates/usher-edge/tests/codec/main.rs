//! The codec against inputs that nobody wrote by hand, and against those that somebody did:
//! generated messages in any split, and the corpus of the fuzz targets with its expected ends.

mod corpus;
mod generated;
mod laws;
mod walk;

use usher_edge::http1;
