//! One page of rows that may be many.

/// Rows in one page at most; a query that asks for more gets this many.
pub const PAGE_LEN_MAX: u32 = 1000;

/// Documents in one page together, in bytes: a page ends early, after at least one row, when the
/// next one would pass this.
pub const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Some rows, newest first, and where the rest is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// How many rows the query has on all its pages together.
    pub total: u64,
    /// Ask again with this as `before` for the page that follows; `None` at the end.
    pub next: Option<u64>,
}
