//! The files of one room: a snapshot, and the records that came after it.
//!
//! `7.log` holds what happened after `7.snapshot`; without a snapshot a room begins empty. A log that
//! is long or old is followed by `8.log`, and a [`Fold`] replays the two files of 7 into
//! `8.snapshot`, on a thread of its own: the owner of the room is not held up, however many wait, and
//! every minute shows again that the records say all there is to say. A snapshot comes into being
//! beside its name and is renamed, and so does a log with its head; only then are the files before it
//! taken away. So at every moment the newest snapshot, and the logs from its number on, are the room,
//! and a log without its head is not what a crash leaves.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use usher_core::id::Id;

use super::JournalFault;
use super::frame::{self, Batch, HEAD_LEN};

/// Version of the files and, before it, what they are.
const LOG_HEAD: &[u8] = b"usher room log 1 ";
const SNAPSHOT_HEAD: &[u8] = b"usher room snapshot 1 ";
/// Bytes of records in one frame of a snapshot.
const CHUNK: usize = 1 << 20;

/// When a log is followed by the next one.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest log, in bytes; the last frame may pass it.
    pub bytes: u64,
    /// Oldest log that has records.
    pub age: Duration,
}

impl Default for Limits {
    /// 64 MiB and 60 s. Source: waiting-room specification 18.7.
    fn default() -> Limits {
        Limits {
            bytes: 64 << 20,
            age: Duration::from_secs(60),
        }
    }
}

/// What the records of a room say, put together.
pub trait State: Send + Sized {
    /// A room where nothing happened yet.
    fn empty() -> Self;

    /// Takes in all records of one batch.
    ///
    /// # Errors
    /// Why they are not records.
    fn replay(&mut self, records: &[u8]) -> Result<(), String>;

    /// Appends records that make this state out of an empty one, by way of `each`, which takes whole
    /// records and may write what has gathered so far.
    ///
    /// # Errors
    /// Those of `each`.
    fn records(
        &self,
        batch: &mut Batch,
        each: &mut dyn FnMut(&mut Batch) -> io::Result<()>,
    ) -> io::Result<()>;
}

/// The log that a room writes to.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    room: Id,
    limits: Limits,
    file: File,
    /// The number in its name.
    index: u64,
    len: u64,
    /// The number of the next frame.
    next: u64,
    since: Instant,
    /// Whether the end of the file is known. After a write that failed it is not.
    sound: bool,
    torn: Option<Torn>,
}

/// The end of a log that did not read and was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    path: PathBuf,
    bytes: u64,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Torn { path, bytes } = self;
        let path = path.display();
        write!(
            f,
            "room journal {path}: the last {bytes} bytes do not read and are cut off; seats and places that only they told of come back with their cookies"
        )
    }
}

impl Log {
    /// Opens the files in `folder`, which is made if it is not there, and replays them.
    ///
    /// What does not read at the very end is cut off, which [`Log::torn`] tells. Where a crash tore
    /// it nobody was told of it; a disk may lose what somebody was told of, too.
    ///
    /// # Errors
    /// The system refuses, or a file is damaged.
    pub fn open<S: State>(
        folder: &Path,
        room: Id,
        limits: Limits,
    ) -> Result<(Log, S), JournalFault> {
        make_folder(folder).map_err(JournalFault::io(folder, "make the folder"))?;
        let files = Files::of(folder)?;
        let base = files.snapshots.last().copied();
        let mut state = S::empty();
        let mut next = 1;
        if let Some(index) = base {
            next = read_snapshot(folder, room, index, &mut state)?;
        }
        let first = base.unwrap_or(1);
        let logs: Vec<u64> = files.logs.into_iter().filter(|&log| log >= first).collect();
        let mut end = None;
        for (place, &index) in logs.iter().enumerate() {
            let expected = first + place as u64;
            if index != expected {
                let path = log_path(folder, expected);
                return Err(JournalFault::damaged(&path, 0, "it is not there"));
            }
            let torn = place + 1 == logs.len();
            let read = read_log(folder, room, index, next, torn, &mut state)?;
            next = read.next;
            end = Some((index, read));
        }
        let log = match end {
            Some((index, read)) => Log::resume(folder, room, limits, index, read)?,
            None => Log::create(folder, room, limits, first, next)
                .map_err(JournalFault::io(&log_path(folder, first), "make"))?,
        };
        remove_before(folder, first);
        Ok((log, state))
    }

    fn create(folder: &Path, room: Id, limits: Limits, index: u64, next: u64) -> io::Result<Log> {
        let path = log_path(folder, index);
        let begun = path.with_extension("begun");
        let mut file = File::create(&begun)?;
        let mut head = Batch::new();
        head.records().extend(head_of(LOG_HEAD, room));
        let bytes = head.frame(next);
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&begun, &path)?;
        sync_folder(folder)?;
        Ok(Log {
            folder: folder.to_owned(),
            room,
            limits,
            file,
            index,
            len: bytes.len() as u64,
            next,
            since: Instant::now(),
            sound: true,
            torn: None,
        })
    }

    fn resume(
        folder: &Path,
        room: Id,
        limits: Limits,
        index: u64,
        Read { next, len, torn }: Read,
    ) -> Result<Log, JournalFault> {
        let path = log_path(folder, index);
        let open = || {
            let file = OpenOptions::new().append(true).open(&path)?;
            if torn > 0 {
                file.set_len(len)?;
                file.sync_all()?;
            }
            Ok(file)
        };
        let file = open().map_err(JournalFault::io(&path, "open"))?;
        Ok(Log {
            folder: folder.to_owned(),
            room,
            limits,
            file,
            index,
            len,
            next,
            since: Instant::now(),
            sound: true,
            torn: (torn > 0).then_some(Torn { path, bytes: torn }),
        })
    }

    /// What [`Log::open`] has cut off.
    #[must_use]
    pub fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    /// Whether somebody has removed the file: what is written then is nowhere.
    ///
    /// # Errors
    /// The system does not say.
    pub fn is_removed(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() == 0)
    }

    /// Writes the records of `batch` and waits until the disk has them. Blocks the thread.
    ///
    /// # Errors
    /// The system refuses. From then on every commit fails until [`Log::rebase`]: what is in the file
    /// now is not known.
    pub fn commit(&mut self, batch: &mut Batch) -> io::Result<()> {
        if !self.sound {
            return Err(io::Error::other("an earlier write failed"));
        }
        let bytes = batch.frame(self.next);
        self.sound = false;
        self.file.write_all(bytes)?;
        self.file.sync_data()?;
        self.sound = true;
        self.len += bytes.len() as u64;
        self.next += 1;
        Ok(())
    }

    /// From here on every write fails, as on a disk that failed once.
    #[cfg(test)]
    pub(crate) fn spoil(&mut self) {
        self.sound = false;
    }

    /// Whether a new log is due.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let records = self.len > (HEAD_LEN + LOG_HEAD.len() + Id::LEN) as u64;
        self.sound
            && (self.len >= self.limits.bytes
                || (records && self.since.elapsed() >= self.limits.age))
    }

    /// Goes on in a new log. What it gives makes the snapshot that the old one is not needed for.
    ///
    /// # Errors
    /// The system refuses; this log goes on.
    pub fn rotate(&mut self) -> io::Result<Fold> {
        let next = Log::create(
            &self.folder,
            self.room,
            self.limits,
            self.index + 1,
            self.next,
        )?;
        *self = next;
        Ok(Fold {
            folder: self.folder.clone(),
            room: self.room,
            index: self.index,
        })
    }

    /// Begins anew with `state`, whatever the files before say and whether the folder is there or
    /// not. Blocks the thread.
    ///
    /// # Errors
    /// The system refuses.
    pub fn rebase<S: State>(&mut self, state: &S) -> io::Result<()> {
        let index = self.index + 1;
        self.sound = false;
        make_folder(&self.folder)?;
        write_snapshot(&self.folder, self.room, index, self.next, state)?;
        // From here on the files before count no more, so a failure may not lead back to them.
        self.index = index;
        *self = Log::create(&self.folder, self.room, self.limits, index, self.next)?;
        remove_before(&self.folder, index);
        Ok(())
    }
}

/// Replays the files before a new log into its snapshot.
#[derive(Debug)]
pub struct Fold {
    folder: PathBuf,
    room: Id,
    /// Of the new log.
    index: u64,
}

impl Fold {
    /// Writes the snapshot and removes what it replaces. Blocks the thread; needs the memory of a
    /// second room while it runs.
    ///
    /// # Errors
    /// The system refuses, or a file is damaged. Nothing is removed then.
    pub fn run<S: State>(&self) -> Result<(), JournalFault> {
        let files = Files::of(&self.folder)?;
        let base = files
            .snapshots
            .into_iter()
            .rfind(|&index| index < self.index);
        let mut state = S::empty();
        let mut next = 1;
        if let Some(index) = base {
            next = read_snapshot(&self.folder, self.room, index, &mut state)?;
        }
        for index in base.unwrap_or(1)..self.index {
            let read = read_log(&self.folder, self.room, index, next, false, &mut state)?;
            next = read.next;
        }
        write_snapshot(&self.folder, self.room, self.index, next, &state).map_err(
            JournalFault::io(&snapshot_path(&self.folder, self.index), "write"),
        )?;
        remove_before(&self.folder, self.index);
        Ok(())
    }
}

/// Replays one log by itself, for whoever looks back. Nothing is locked, cut or removed; a log that
/// is being written is read as far as it is whole.
///
/// # Errors
/// The file cannot be read, is damaged, or is no log of this room.
pub fn look_back<S: State>(path: &Path, room: Id) -> Result<S, JournalFault> {
    let bytes = fs::read(path).map_err(JournalFault::io(path, "read"))?;
    let mut state = S::empty();
    // Its first frame says which one it is.
    let next = frame::read(&bytes, 0).map_or(0, |head| head.number);
    replay_log(path, room, next, &bytes, true, &mut state)?;
    Ok(state)
}

/// What lies in a folder, in order.
struct Files {
    snapshots: Vec<u64>,
    logs: Vec<u64>,
}

impl Files {
    fn of(folder: &Path) -> Result<Files, JournalFault> {
        let list = || {
            let mut files = Files {
                snapshots: Vec::new(),
                logs: Vec::new(),
            };
            for entry in fs::read_dir(folder)? {
                let name = entry?.file_name();
                let Some((number, kind)) = name.to_str().and_then(|name| name.split_once('.'))
                else {
                    continue;
                };
                let Ok(number) = number.parse() else {
                    continue;
                };
                match kind {
                    "log" => files.logs.push(number),
                    "snapshot" => files.snapshots.push(number),
                    _ => {}
                }
            }
            files.snapshots.sort_unstable();
            files.logs.sort_unstable();
            Ok(files)
        };
        list().map_err(JournalFault::io(folder, "list"))
    }
}

struct Read {
    /// The number of the next frame.
    next: u64,
    /// Bytes that are whole.
    len: u64,
    /// Bytes behind them.
    torn: u64,
}

fn read_log<S: State>(
    folder: &Path,
    room: Id,
    index: u64,
    next: u64,
    may_be_torn: bool,
    state: &mut S,
) -> Result<Read, JournalFault> {
    let path = log_path(folder, index);
    let bytes = fs::read(&path).map_err(JournalFault::io(&path, "read"))?;
    replay_log(&path, room, next, &bytes, may_be_torn, state)
}

fn replay_log<S: State>(
    path: &Path,
    room: Id,
    mut next: u64,
    bytes: &[u8],
    may_be_torn: bool,
    state: &mut S,
) -> Result<Read, JournalFault> {
    let mut at = 0;
    let mut head = true;
    while at < bytes.len() {
        let Some(frame) = frame::read(bytes, at) else {
            if may_be_torn && !head && !frame::follows(bytes, at) {
                break;
            }
            return Err(JournalFault::damaged(
                path,
                at,
                "what is there does not read",
            ));
        };
        if frame.number != next {
            let what = format!("frame {} stands where {next} should", frame.number);
            return Err(JournalFault::damaged(path, at, what));
        }
        if head {
            if frame.payload != head_of(LOG_HEAD, room) {
                return Err(JournalFault::damaged(path, at, "not a log of this room"));
            }
            head = false;
        } else {
            state
                .replay(frame.payload)
                .map_err(|what| JournalFault::damaged(path, at, what))?;
            next += 1;
        }
        at = frame.end;
    }
    if head {
        return Err(JournalFault::damaged(path, at, "it is empty"));
    }
    Ok(Read {
        next,
        len: at as u64,
        torn: (bytes.len() - at) as u64,
    })
}

/// The number of the first frame after the snapshot.
fn read_snapshot<S: State>(
    folder: &Path,
    room: Id,
    index: u64,
    state: &mut S,
) -> Result<u64, JournalFault> {
    let path = snapshot_path(folder, index);
    let bytes = fs::read(&path).map_err(JournalFault::io(&path, "read"))?;
    let damaged = |at, what: &str| JournalFault::damaged(&path, at, what);
    let unread = "what is there does not read";
    let head = frame::read(&bytes, 0).ok_or_else(|| damaged(0, unread))?;
    if head.payload != head_of(SNAPSHOT_HEAD, room) {
        return Err(damaged(0, "not a snapshot of this room"));
    }
    let mut at = head.end;
    for number in 1.. {
        let frame = frame::read(&bytes, at).ok_or_else(|| damaged(at, unread))?;
        if frame.number != number {
            return Err(damaged(at, "frames are out of order"));
        }
        // An empty frame is the end, and nothing follows it.
        if frame.payload.is_empty() {
            if frame.end != bytes.len() {
                return Err(damaged(frame.end, "something follows the end"));
            }
            break;
        }
        state
            .replay(frame.payload)
            .map_err(|what| JournalFault::damaged(&path, at, what))?;
        at = frame.end;
    }
    Ok(head.number)
}

fn write_snapshot<S: State>(
    folder: &Path,
    room: Id,
    index: u64,
    next: u64,
    state: &S,
) -> io::Result<()> {
    let path = snapshot_path(folder, index);
    let draft = path.with_extension("draft");
    let mut file = File::create(&draft)?;
    let mut batch = Batch::new();
    batch.records().extend(head_of(SNAPSHOT_HEAD, room));
    file.write_all(batch.frame(next))?;
    batch.clear();
    let mut number = 0;
    let mut write = |batch: &mut Batch| {
        number += 1;
        file.write_all(batch.frame(number))?;
        batch.clear();
        Ok(())
    };
    state.records(&mut batch, &mut |batch| {
        if batch.len() >= CHUNK {
            write(batch)
        } else {
            Ok(())
        }
    })?;
    if !batch.is_empty() {
        write(&mut batch)?;
    }
    write(&mut batch)?;
    file.sync_all()?;
    fs::rename(&draft, &path)?;
    sync_folder(folder)
}

/// Removes files that a newer snapshot replaced, and drafts. What stays is only space.
fn remove_before(folder: &Path, index: u64) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((number, kind)) = name.to_str().and_then(|name| name.split_once('.')) else {
            continue;
        };
        let old = number.parse::<u64>().is_ok_and(|number| number < index);
        if old
            && matches!(kind, "log" | "snapshot" | "draft" | "begun")
            && let Err(error) = fs::remove_file(entry.path())
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %entry.path().display(), %error, "an old file of a room stays");
        }
    }
}

fn head_of(what: &[u8], room: Id) -> Vec<u8> {
    [what, &room.to_bytes()[..]].concat()
}

fn log_path(folder: &Path, index: u64) -> PathBuf {
    folder.join(format!("{index}.log"))
}

fn snapshot_path(folder: &Path, index: u64) -> PathBuf {
    folder.join(format!("{index}.snapshot"))
}

fn make_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    folder.parent().map_or(Ok(()), sync_folder)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tempfile::TempDir;

    const ROOM: Id = Id::from_bytes([7; 16]);

    /// Every record is a number.
    #[derive(Debug, Default, Clone, PartialEq, Eq)]
    struct Numbers(Vec<u32>);

    impl State for Numbers {
        fn empty() -> Numbers {
            Numbers::default()
        }

        fn replay(&mut self, records: &[u8]) -> Result<(), String> {
            let (numbers, rest) = records.as_chunks::<4>();
            if !rest.is_empty() {
                return Err("half a number".to_owned());
            }
            self.0
                .extend(numbers.iter().map(|n| u32::from_le_bytes(*n)));
            Ok(())
        }

        fn records(
            &self,
            batch: &mut Batch,
            each: &mut dyn FnMut(&mut Batch) -> io::Result<()>,
        ) -> io::Result<()> {
            for number in &self.0 {
                batch.records().extend(number.to_le_bytes());
                each(batch)?;
            }
            Ok(())
        }
    }

    fn open(folder: &TempDir) -> Result<(Log, Numbers), JournalFault> {
        Log::open(&folder.path().join("room"), ROOM, Limits::default())
    }

    fn opened(folder: &TempDir) -> (Log, Vec<u32>) {
        let (log, Numbers(numbers)) = open(folder).expect("good files");
        (log, numbers)
    }

    fn write(log: &mut Log, numbers: impl IntoIterator<Item = u32>) {
        let mut batch = Batch::new();
        for number in numbers {
            batch.records().extend(number.to_le_bytes());
        }
        log.commit(&mut batch).expect("written");
    }

    fn file(folder: &TempDir, name: &str) -> PathBuf {
        folder.path().join("room").join(name)
    }

    fn names(folder: &TempDir) -> Vec<String> {
        let entries = fs::read_dir(folder.path().join("room")).expect("list");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("entry")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        names
    }

    fn folder() -> TempDir {
        tempfile::tempdir().expect("folder")
    }

    #[test]
    fn what_was_committed_is_there_again() {
        let folder = folder();
        let (mut log, numbers) = opened(&folder);
        assert!(numbers.is_empty());
        write(&mut log, [1, 2]);
        write(&mut log, [3]);
        drop(log);
        let (mut log, numbers) = opened(&folder);
        assert_eq!(numbers, [1, 2, 3]);
        write(&mut log, [4]);
        drop(log);
        assert_eq!(opened(&folder).1, [1, 2, 3, 4]);
    }

    #[test]
    fn a_log_is_followed_by_the_next_and_folded() {
        let folder = folder();
        let (mut log, _) = opened(&folder);
        assert!(!log.is_full(), "an empty log does not age");
        write(&mut log, 0..1000);
        let fold = log.rotate().expect("rotated");
        write(&mut log, [1000]);
        // Whether it ends before it is folded ...
        drop(log);
        let expected: Vec<u32> = (0..=1000).collect();
        let (mut log, numbers) = opened(&folder);
        assert_eq!(numbers, expected);
        assert_eq!(names(&folder), ["1.log", "2.log"]);
        // ... or after.
        fold.run::<Numbers>().expect("folded");
        assert_eq!(names(&folder), ["2.log", "2.snapshot"]);
        write(&mut log, [1001]);
        let fold = log.rotate().expect("rotated");
        fold.run::<Numbers>().expect("folded");
        assert_eq!(names(&folder), ["3.log", "3.snapshot"]);
        assert_eq!(opened(&folder).1, (0..=1001).collect::<Vec<u32>>());
    }

    #[test]
    fn a_log_is_read_by_itself_and_left_as_it_is() {
        let folder = folder();
        let (mut log, _) = opened(&folder);
        write(&mut log, [1, 2]);
        log.rotate().expect("rotated");
        write(&mut log, [3]);
        write(&mut log, [4]);
        let alone = |name| look_back::<Numbers>(&file(&folder, name), ROOM);
        assert_eq!(alone("1.log").expect("whole").0, [1, 2]);
        assert_eq!(alone("2.log").expect("whole").0, [3, 4]);
        let path = file(&folder, "2.log");
        let bytes = fs::read(&path).expect("read");
        let torn = &bytes[..bytes.len() - 1];
        fs::write(&path, torn).expect("write");
        assert_eq!(alone("2.log").expect("torn at its end").0, [3]);
        assert_eq!(fs::read(&path).expect("read"), torn);
        let other = Id::from_bytes([8; 16]);
        let fault = look_back::<Numbers>(&path, other).expect_err("another room");
        assert!(fault.to_string().contains("not a log of this room"));
    }

    #[test]
    fn a_log_is_full_by_size_or_by_age() {
        let folder = folder();
        let path = folder.path().join("room");
        let by_size = Limits {
            bytes: 100,
            age: Duration::MAX,
        };
        let (mut log, _) = Log::open::<Numbers>(&path, ROOM, by_size).expect("good files");
        write(&mut log, [1]);
        assert!(!log.is_full());
        write(&mut log, 0..10);
        assert!(log.is_full());
        drop(log);
        let by_age = Limits {
            bytes: u64::MAX,
            age: Duration::ZERO,
        };
        let (mut log, _) = Log::open::<Numbers>(&path, ROOM, by_age).expect("good files");
        assert!(log.is_full());
        log.rotate().expect("rotated");
        assert!(!log.is_full());
    }

    #[test]
    fn a_large_state_is_many_frames() {
        let folder = folder();
        let (mut log, _) = opened(&folder);
        let state = Numbers((0..600_000).collect());
        log.rebase(&state).expect("written");
        drop(log);
        assert_eq!(opened(&folder).1, state.0);
    }

    #[test]
    fn a_disk_that_failed_is_begun_anew() {
        let folder = folder();
        let (mut log, _) = opened(&folder);
        write(&mut log, [1]);
        // A descriptor that cannot be written to stands for the failing disk.
        let kept = std::mem::replace(
            &mut log.file,
            File::open(file(&folder, "1.log")).expect("open"),
        );
        let mut batch = Batch::new();
        batch.records().extend(2_u32.to_le_bytes());
        log.commit(&mut batch).expect_err("not writable");
        log.file = kept;
        let fault = log.commit(&mut batch).expect_err("not sound");
        assert_eq!(fault.to_string(), "an earlier write failed");
        assert!(!log.is_full(), "an unsound log is not folded");
        log.rebase(&Numbers(vec![1, 2, 3])).expect("begun anew");
        write(&mut log, [4]);
        drop(log);
        assert_eq!(names(&folder), ["2.log", "2.snapshot"]);
        assert_eq!(opened(&folder).1, [1, 2, 3, 4]);
    }

    #[test]
    fn a_crash_between_the_steps_of_beginning_anew_loses_nothing() {
        let folder = folder();
        let (mut log, _) = opened(&folder);
        write(&mut log, [1]);
        log.rebase(&Numbers(vec![1, 2])).expect("begun anew");
        drop(log);
        // The snapshot is there and its log not yet.
        fs::remove_file(file(&folder, "2.log")).expect("remove");
        let (mut log, numbers) = opened(&folder);
        assert_eq!(numbers, [1, 2]);
        write(&mut log, [3]);
        drop(log);
        // A draft is not a snapshot.
        fs::write(file(&folder, "3.draft"), b"half").expect("write");
        assert_eq!(opened(&folder).1, [1, 2, 3]);
    }

    #[test]
    fn an_end_that_does_not_read_is_told_once() {
        let folder = folder();
        let (mut log, _) = opened(&folder);
        write(&mut log, [1]);
        write(&mut log, [2, 3]);
        drop(log);
        let (log, _) = opened(&folder);
        assert_eq!(log.torn(), None, "a clean end has nothing to tell");
        drop(log);
        let path = file(&folder, "1.log");
        let bytes = fs::read(&path).expect("read");
        fs::write(&path, &bytes[..bytes.len() - 1]).expect("write");
        let (log, numbers) = opened(&folder);
        assert_eq!(numbers, [1]);
        let told = log.torn().expect("torn").to_string();
        let wanted = format!("{}: the last 27 bytes do not read", path.display());
        assert!(told.contains(&wanted), "{told}");
        drop(log);
        assert_eq!(opened(&folder).0.torn(), None);
    }

    #[test]
    fn a_log_without_its_head_is_damaged_wherever_it_is() {
        for kept in [0, 3, 40] {
            let folder = folder();
            let (mut log, _) = opened(&folder);
            write(&mut log, [1]);
            drop(log);
            let path = file(&folder, "1.log");
            let bytes = fs::read(&path).expect("read");
            fs::write(&path, &bytes[..kept]).expect("write");
            let fault = open(&folder).expect_err("damaged").to_string();
            assert!(fault.contains("1.log: damaged at byte 0"), "{fault}");
            assert_eq!(fs::read(&path).expect("read"), &bytes[..kept]);
        }
    }

    #[test]
    fn a_log_that_never_got_its_name_is_none() {
        let folder = folder();
        let (mut log, _) = opened(&folder);
        write(&mut log, [1]);
        drop(log);
        fs::write(file(&folder, "2.begun"), b"half").expect("write");
        let (mut log, numbers) = opened(&folder);
        assert_eq!(numbers, [1]);
        log.rebase(&Numbers(vec![1])).expect("begun anew");
        assert_eq!(names(&folder), ["2.log", "2.snapshot"]);
    }

    #[test]
    fn a_folder_that_was_removed_is_made_again() {
        let folder = folder();
        let (mut log, _) = opened(&folder);
        write(&mut log, [1]);
        assert!(!log.is_removed().expect("told"));
        fs::remove_dir_all(folder.path().join("room")).expect("remove");
        assert!(log.is_removed().expect("told"));
        log.rebase(&Numbers(vec![1, 2])).expect("begun anew");
        assert!(!log.is_removed().expect("told"));
        write(&mut log, [3]);
        drop(log);
        assert_eq!(opened(&folder).1, [1, 2, 3]);
    }

    #[test]
    fn files_that_are_not_ours_are_refused() {
        let damage = |name: &str, change: &dyn Fn(&Path), expected: &str| {
            let folder = folder();
            let (mut log, _) = opened(&folder);
            write(&mut log, [1]);
            log.rotate()
                .expect("rotated")
                .run::<Numbers>()
                .expect("folded");
            write(&mut log, [2]);
            write(&mut log, [3]);
            log.rotate().expect("rotated");
            write(&mut log, [4]);
            drop(log);
            let path = file(&folder, name);
            change(&path);
            let fault = open(&folder).expect_err("damaged");
            let text = fault.to_string();
            assert!(
                text.contains(&format!("{}: damaged at byte", path.display())),
                "{text}"
            );
            assert!(text.contains(expected), "{text}");
            assert!(
                path.exists() || expected == "it is not there",
                "nothing is tidied away"
            );
        };
        let flip = |at: usize| {
            move |path: &Path| {
                let mut bytes = fs::read(path).expect("read");
                bytes[at] ^= 1;
                fs::write(path, bytes).expect("write");
            }
        };
        let cut = |path: &Path| {
            let bytes = fs::read(path).expect("read");
            fs::write(path, &bytes[..bytes.len() - 1]).expect("write");
        };
        damage("2.log", &flip(3), "byte 0: what is there does not read");
        damage("2.log", &flip(60), "what is there does not read");
        damage("2.log", &cut, "what is there does not read");
        damage(
            "2.log",
            &|path| fs::write(path, b"").expect("write"),
            "it is empty",
        );
        damage(
            "2.log",
            &|path| fs::remove_file(path).expect("remove"),
            "it is not there",
        );
        damage("3.log", &flip(3), "what is there does not read");
        damage("2.snapshot", &flip(60), "what is there does not read");
        damage("2.snapshot", &cut, "what is there does not read");
        let elsewhere = |path: &Path| {
            let other = path.with_file_name("other");
            let room = Id::from_bytes([8; 16]);
            drop(Log::open::<Numbers>(&other, room, Limits::default()).expect("made"));
            let mut bytes = fs::read(other.join("1.log")).expect("read");
            // With the number that is expected here.
            let mut head = Batch::new();
            head.records().extend_from_slice(&bytes.split_off(HEAD_LEN));
            fs::write(path, head.frame(2)).expect("write");
        };
        damage("2.log", &elsewhere, "not a log of this room");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

        /// However many bytes of the last log a crash kept, what is read is what was written up to
        /// some commit, and the room goes on from there.
        #[test]
        fn any_cut_of_the_last_log_is_a_moment_of_the_past(
            commits in prop::collection::vec(prop::collection::vec(any::<u32>(), 1..8), 1..6),
            keep: prop::sample::Index,
            zeros in 0_usize..40,
        ) {
            let folder = folder();
            let (mut log, _) = opened(&folder);
            for commit in &commits {
                write(&mut log, commit.iter().copied());
            }
            drop(log);
            let path = file(&folder, "1.log");
            let bytes = fs::read(&path).expect("read");
            let head = frame::read(&bytes, 0).expect("a head").end;
            let mut kept = bytes[..head + keep.index(bytes.len() + 1 - head)].to_vec();
            kept.resize(kept.len() + zeros, 0);
            fs::write(&path, kept).expect("write");
            let cut = fs::metadata(&path).expect("there").len();
            let (mut log, mut numbers) = opened(&folder);
            let torn = log.torn().map_or(0, |torn| torn.bytes);
            prop_assert_eq!(fs::metadata(&path).expect("there").len() + torn, cut);
            let moments: Vec<Vec<u32>> = (0..=commits.len()).map(|count| commits[..count].concat()).collect();
            prop_assert!(moments.contains(&numbers), "{:?}", numbers);
            write(&mut log, [5]);
            drop(log);
            numbers.push(5);
            prop_assert_eq!(opened(&folder).1, numbers);
        }
    }
}
