//! The access log: one JSON object a line, made by the worker and written by a thread of its own.
//!
//! A worker gathers lines and hands them over a bounded queue in batches. When the disk cannot keep
//! up the queue is full, and lines are dropped and counted: a full disk must cost log lines, not
//! requests. Peers choose much of what is written here, so every text is escaped and no line can be
//! made to look like two, or to move a terminal's cursor.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, thread};

use memchr::{memchr, memrchr};
use rustix::fs::OFlags;
use tracing::{info, warn};
use usher_core::snapshot::Snapshot;

use super::forward::write_address;
use super::record::Record;

/// Batches that may wait for the writer; about 4 MiB of lines.
const QUEUE_MAX: usize = 64;

/// A batch this long is handed over before its time.
const BATCH_BYTES: usize = 64 * 1024;

/// What a pipe takes without letting anything else come between, in bytes.
const PIPE_BUF: usize = 4096;

/// How often the writer looks whether its file was moved away.
const MOVED_CHECK: Duration = Duration::from_secs(1);

/// Between two complaints about a file that cannot be written.
const COMPLAINT: Duration = Duration::from_secs(60);

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// A file, which is made if it is not there, appended to if it is, and opened anew when it was
    /// moved away.
    File(PathBuf),
}

enum Order {
    Write { lines: u64, text: Vec<u8> },
    Reopen,
    Flush { done: SyncSender<()> },
}

/// The way to the writer. The writer ends when this is dropped, after all that was handed over.
pub struct AccessLog(Option<SyncSender<Order>>);

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AccessLog").field(&self.is_on()).finish()
    }
}

impl AccessLog {
    /// Opens the file and starts the writer.
    ///
    /// # Errors
    /// The file cannot be opened for appending, or there can be no more threads.
    pub fn open(target: LogTarget) -> io::Result<AccessLog> {
        let sink: Box<dyn Sink> = match target {
            LogTarget::Off => return Ok(AccessLog(None)),
            LogTarget::Stdout => Box::new(io::stdout()),
            LogTarget::File(path) => Box::new(LogFile::open(path)?),
        };
        let (sender, orders) = sync_channel(QUEUE_MAX);
        let writer = Writer {
            sink,
            complained: None,
        };
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run(&orders))?;
        Ok(AccessLog(Some(sender)))
    }

    /// A log that goes nowhere.
    #[must_use]
    pub const fn off() -> AccessLog {
        AccessLog(None)
    }

    /// Whether lines are wanted at all.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Opens the file anew if it was moved away, after what was handed over before is written.
    pub fn reopen(&self) {
        if let Some(sender) = &self.0 {
            // A writer with a full queue looks by itself, once a second.
            let _ = sender.try_send(Order::Reopen);
        }
    }

    /// Waits until all that was handed over is written, or until `limit` is over. Blocks.
    pub fn flush(&self, limit: Duration) {
        let Some(sender) = &self.0 else { return };
        let until = Instant::now() + limit;
        let (done, written) = sync_channel(1);
        let mut order = Order::Flush { done };
        while let Err(TrySendError::Full(back)) = sender.try_send(order) {
            order = back;
            if Instant::now() >= until {
                return;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
        // It may be late, but then there is nothing else to wait for.
        let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// Lines that could not be written, on this node.
#[derive(Debug, Default)]
pub(crate) struct Dropped(AtomicU64);

impl Dropped {
    pub(crate) fn lines(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lines of one worker that wait to be handed over.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    text: Vec<u8>,
    lines: u64,
    clock: Clock,
}

impl Batch {
    /// Adds a line; hands over when there are many.
    pub(crate) fn add(
        &mut self,
        log: &AccessLog,
        snapshot: &Snapshot,
        record: &Record<'_>,
        dropped: &Dropped,
    ) {
        if !log.is_on() {
            return;
        }
        write_line(&mut self.text, &mut self.clock, snapshot, record);
        self.lines += 1;
        if self.text.len() >= BATCH_BYTES {
            self.hand_over(log, dropped);
        }
    }

    /// Hands over what there is.
    pub(crate) fn hand_over(&mut self, log: &AccessLog, dropped: &Dropped) {
        if self.lines == 0 {
            return;
        }
        // About as long as the last: growing by doubling would copy every line again.
        let text = std::mem::take(&mut self.text);
        self.text.reserve(text.len().min(BATCH_BYTES + 4096));
        let lines = std::mem::take(&mut self.lines);
        let Some(sender) = &log.0 else { return };
        if sender.try_send(Order::Write { lines, text }).is_err() {
            dropped.0.fetch_add(lines, Ordering::Relaxed);
        }
    }
}

trait Sink: Send {
    fn write(&mut self, text: &[u8]) -> io::Result<()>;

    /// Follows the name, where there is one.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for io::Stdout {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let mut out = self.lock();
        pieces(text).try_for_each(|piece| {
            out.write_all(piece)?;
            out.flush()
        })
    }
}

/// Whole lines, as many together as a pipe takes in one piece: another process may write to the same
/// pipe during a hand-over. A line that is longer is a piece of its own.
fn pieces(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let fits = &text[..text.len().min(PIPE_BUF)];
        let end = memrchr(b'\n', fits).or_else(|| memchr(b'\n', text));
        let (piece, rest) = text.split_at(end.map_or(text.len(), |end| end + 1));
        text = rest;
        Some(piece).filter(|piece| !piece.is_empty())
    })
}

struct LogFile {
    path: PathBuf,
    file: File,
    checked: Instant,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<LogFile> {
        let file = append(&path)?;
        Ok(LogFile {
            path,
            file,
            checked: Instant::now(),
        })
    }

    /// Whether the path leads to another file by now, or to none.
    fn is_moved(&self) -> bool {
        let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
        let (ours, now) = (self.file.metadata(), std::fs::metadata(&self.path));
        ours.map(identity).ok() != now.map(identity).ok()
    }
}

impl Sink for LogFile {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.checked.elapsed() >= MOVED_CHECK {
            self.reopen()?;
        }
        self.file.write_all(text)
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.checked = Instant::now();
        if self.is_moved() {
            self.file = append(&self.path)?;
            info!(path = %self.path.display(), "access log was moved away, opened anew");
        }
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    // Without waiting: a pipe that nobody reads would otherwise hold up whoever opens it.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut options = OpenOptions::new();
    options.create(true).append(true).custom_flags(flags);
    options.open(path)
}

struct Writer {
    sink: Box<dyn Sink>,
    complained: Option<Instant>,
}

impl Writer {
    fn run(mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Write { lines, text } => {
                    if let Err(error) = self.sink.write(&text) {
                        self.complain(lines, &error);
                    }
                }
                Order::Reopen => {
                    if let Err(error) = self.sink.reopen() {
                        self.complain(0, &error);
                    }
                }
                // Nobody may wait any more.
                Order::Flush { done } => drop(done.try_send(())),
            }
        }
    }

    fn complain(&mut self, lines: u64, error: &io::Error) {
        if self
            .complained
            .is_none_or(|last| last.elapsed() >= COMPLAINT)
        {
            self.complained = Some(Instant::now());
            warn!(lines, %error, "access log cannot be written, lines are lost");
        }
    }
}

/// Times as text; the second is made once.
#[derive(Debug)]
struct Clock {
    second: u64,
    text: [u8; 24],
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            second: 0,
            text: *b"1970-01-01T00:00:00.000Z",
        }
    }
}

impl Clock {
    /// RFC 3339 in UTC with milliseconds; times before 1970 count as 1970.
    fn format(&mut self, time: SystemTime) -> &[u8] {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != since.as_secs() {
            self.second = since.as_secs();
            self.set_second();
        }
        digits(&mut self.text[20..23], u64::from(since.subsec_millis()));
        &self.text
    }

    fn set_second(&mut self) {
        let (days, second) = (self.second / 86_400, self.second % 86_400);
        let (year, month, day) = civil(days);
        let parts = [(0..4, year), (5..7, month), (8..10, day)];
        let clock = [
            (11..13, second / 3600),
            (14..16, second / 60 % 60),
            (17..19, second % 60),
        ];
        for (range, value) in parts.into_iter().chain(clock) {
            digits(&mut self.text[range], value);
        }
    }
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Counted in years that begin in March, so that the leap day is the last of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn digits(text: &mut [u8], mut value: u64) {
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

fn write_line(out: &mut Vec<u8>, clock: &mut Clock, snapshot: &Snapshot, record: &Record<'_>) {
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(clock.format(record.started));
    out.extend_from_slice(b"\",\"request_id\":");
    text(out, record.request_id.as_bytes());
    out.extend_from_slice(b",\"client\":\"");
    write_address(record.client, out);
    out.extend_from_slice(b"\",\"method\":");
    known(out, record.method);
    out.extend_from_slice(b",\"host\":");
    known(out, record.host.as_bytes());
    out.extend_from_slice(b",\"path\":");
    known(out, record.path);
    if record.status == 0 {
        name(out, "status", None);
    } else {
        number(out, "status", u64::from(record.status));
    }
    number(out, "bytes_in", record.bytes_in);
    number(out, "bytes_out", record.bytes_out);
    millis(out, "duration_ms", Some(record.duration));
    let catalog = snapshot.catalog();
    name(
        out,
        "load_balancer",
        record.balancer.map(|ix| &*catalog.balancer(ix).name),
    );
    name(out, "pool", record.pool.map(|ix| &*catalog.pool(ix).name));
    name(
        out,
        "endpoint",
        record.endpoint.map(|ix| &*snapshot.endpoint(ix).name),
    );
    millis(out, "upstream_ms", record.upstream);
    number(out, "attempts", u64::from(record.attempts));
    name(out, "session", Some(record.session.as_str()));
    let room = record.room.map_or("none", |seen| seen.word.as_str());
    name(out, "room", Some(room));
    name(out, "error", record.error);
    name(out, "tls", record.tls);
    name(out, "protocol", Some(record.protocol));
    out.extend_from_slice(b"}\n");
}

fn number(out: &mut Vec<u8>, key: &str, value: u64) {
    open(out, key);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Milliseconds with three decimals: a fast answer takes far less than one.
fn millis(out: &mut Vec<u8>, key: &str, value: Option<Duration>) {
    open(out, key);
    let Some(value) = value else {
        out.extend_from_slice(b"null");
        return;
    };
    let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
    out.extend_from_slice(itoa::Buffer::new().format(micros / 1000).as_bytes());
    let mut decimals = *b".000";
    digits(&mut decimals[1..], micros % 1000);
    out.extend_from_slice(&decimals);
}

fn name(out: &mut Vec<u8>, key: &str, value: Option<&str>) {
    open(out, key);
    match value {
        Some(value) => text(out, value.as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
}

/// A text that is never empty when it is known.
fn known(out: &mut Vec<u8>, value: &[u8]) {
    if value.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        text(out, value);
    }
}

fn open(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

/// A JSON string. Bytes that are no UTF-8 are written as in a URL, `%FF`; control characters, also
/// those above ASCII, are escaped.
fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    if bytes.iter().all(|&byte| is_plain(byte)) {
        out.extend_from_slice(bytes);
    } else {
        escape(out, bytes);
    }
    out.push(b'"');
}

const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

#[cold]
fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
                // Line separators end a line for some readers.
                '\u{2028}' | '\u{2029}' => unicode(out, character),
                character if character.is_control() => unicode(out, character),
                character => {
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        for byte in chunk.invalid() {
            write!(out, "%{byte:02X}").expect("a Vec takes any bytes");
        }
    }
}

fn unicode(out: &mut Vec<u8>, character: char) {
    write!(out, "\\u{:04x}", u32::from(character)).expect("a Vec takes any bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        text(&mut out, bytes);
        String::from_utf8(out).expect("valid UTF-8, whatever came in")
    }

    #[test]
    fn no_text_can_leave_its_quotes_or_its_line() {
        let rows: [(&[u8], &str); 9] = [
            (b"/plain?%20", r#""/plain?%20""#),
            (b"a\"b\\c", r#""a\"b\\c""#),
            (b"a\r\nb\tc\0", r#""a\u000d\u000ab\u0009c\u0000""#),
            (b"\x1b[31m", r#""\u001b[31m""#),
            (b"\x7f", r#""\u007f""#),
            ("grün".as_bytes(), r#""grün""#),
            ("\u{9b}31m\u{2028}".as_bytes(), r#""\u009b31m\u2028""#),
            (b"\xff/\xc3\xbc", r#""%FF/ü""#),
            (b"", r#""""#),
        ];
        for (bytes, expected) in rows {
            assert_eq!(quoted(bytes), expected);
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let rows = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_001, "2024-02-29T23:59:59.001Z"),
            (1_735_689_600_000, "2025-01-01T00:00:00.000Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        let mut clock = Clock::default();
        for (millis, expected) in rows {
            let time = UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(clock.format(time), expected.as_bytes());
        }
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(clock.format(before), b"1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn durations_have_three_decimals() {
        let mut out = Vec::new();
        millis(&mut out, "a", Some(Duration::from_micros(12_034)));
        millis(&mut out, "b", None);
        assert_eq!(out, br#","a":12.034,"b":null"#);
    }

    fn batch(line: &str) -> Batch {
        Batch {
            text: format!("{line}\n").into_bytes(),
            lines: 1,
            clock: Clock::default(),
        }
    }

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew() {
        let folder = tempfile::tempdir().expect("folder");
        let (path, moved) = (
            folder.path().join("access.log"),
            folder.path().join("access.log.1"),
        );
        let mut file = LogFile::open(path.clone()).expect("open");
        file.write(b"one\n").expect("write");
        std::fs::rename(&path, &moved).expect("move");
        // As if the last look were long ago.
        file.checked -= MOVED_CHECK;
        file.write(b"two\n").expect("write");
        assert_eq!(std::fs::read_to_string(&moved).expect("old"), "one\n");
        assert_eq!(std::fs::read_to_string(&path).expect("new"), "two\n");
    }

    #[test]
    fn a_pipe_gets_whole_lines_in_pieces_that_it_takes_at_once() {
        let line = |len: usize| [vec![b'x'; len - 1], vec![b'\n']].concat();
        let lens = |lens: &[usize]| {
            let text: Vec<u8> = lens.iter().copied().flat_map(line).collect();
            let pieces: Vec<&[u8]> = pieces(&text).collect();
            assert_eq!(pieces.concat(), text);
            assert!(pieces.iter().all(|piece| piece.ends_with(b"\n")));
            pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>()
        };
        assert_eq!(lens(&[]), [0; 0]);
        assert_eq!(lens(&[1000; 9]), [4000, 4000, 1000]);
        assert_eq!(lens(&[2048, 2048, 1]), [4096, 1]);
        assert_eq!(lens(&[100, 9000, 100, 100]), [100, 9000, 200]);
        assert_eq!(pieces(b"no end").collect::<Vec<_>>(), [b"no end"]);
    }

    #[test]
    fn what_was_handed_over_is_written_in_order() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("access.log");
        std::fs::write(&path, "before\n").expect("write");
        let log = AccessLog::open(LogTarget::File(path.clone())).expect("open");
        let dropped = Dropped::default();
        batch("one").hand_over(&log, &dropped);
        batch("two").hand_over(&log, &dropped);
        log.flush(Duration::from_secs(10));
        assert_eq!(
            std::fs::read_to_string(&path).expect("log"),
            "before\none\ntwo\n"
        );
        assert_eq!(dropped.lines(), 0);
    }

    #[test]
    fn a_writer_that_cannot_keep_up_costs_lines_and_no_time() {
        // Nobody takes from the queue: the slowest of all disks.
        let (sender, orders) = sync_channel(QUEUE_MAX);
        let log = AccessLog(Some(sender));
        let dropped = Dropped::default();
        for _ in 0..QUEUE_MAX + 3 {
            batch("line").hand_over(&log, &dropped);
        }
        assert_eq!(dropped.lines(), 3);
        drop(orders);
    }
}
