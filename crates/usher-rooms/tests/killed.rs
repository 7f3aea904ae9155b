//! A process that writes a journal is killed at moments nobody chose. What it said was on disk is
//! there afterwards, and what is there is what it wrote, up to some point.
//!
//! The child is this test binary once more, told by the environment what to do.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use usher_core::id::Id;
use usher_rooms::journal::{Batch, Limits, Live, Log, State};

const FOLDER: &str = "USHER_TEST_JOURNAL";
const ROOM: Id = Id::from_bytes([7; 16]);
/// Small, so that logs follow each other while the process is killed.
const LIMITS: Limits = Limits {
    bytes: 4096,
    age: Duration::MAX,
};

/// How far a count has come; each record is the next number.
struct Count(u64);

impl State for Count {
    fn empty() -> Count {
        Count(0)
    }

    fn replay(&mut self, records: &[u8]) -> Result<(), String> {
        let (numbers, rest) = records.as_chunks::<8>();
        if !rest.is_empty() {
            return Err("half a number".to_owned());
        }
        for number in numbers {
            let number = u64::from_le_bytes(*number);
            // A snapshot says the same in one record.
            if number != self.0 + 1 && self.0 != 0 {
                return Err(format!("{number} follows {}", self.0));
            }
            self.0 = number;
        }
        Ok(())
    }

    fn records(
        &self,
        batch: &mut Batch,
        _: &mut dyn FnMut(&mut Batch) -> io::Result<()>,
    ) -> io::Result<()> {
        batch.records().extend(self.0.to_le_bytes());
        Ok(())
    }
}

/// Not a test of its own: what the child does. Without the variable it is nothing.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let live = Live::take(Path::new(&folder)).expect("the lock of a killed process is free");
    let (mut log, Count(mut count)) = Log::open(&live.of_room(ROOM), ROOM, LIMITS).expect("files");
    let mut batch = Batch::new();
    let mut out = io::stdout();
    writeln!(out, "read {count}").expect("said");
    for size in (1..40).cycle() {
        for _ in 0..size {
            count += 1;
            batch.records().extend(count.to_le_bytes());
        }
        log.commit(&mut batch).expect("committed");
        batch.clear();
        writeln!(out, "wrote {count}").expect("said");
        if log.is_full() {
            log.rotate()
                .expect("rotated")
                .run::<Count>()
                .expect("folded");
        }
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn twenty_kills_lose_nothing_that_was_said_to_be_there() {
    let folder = tempfile::tempdir().expect("folder");
    let live = folder.path().join("live");
    let mut said = 0;
    for round in 0..20_u64 {
        let mut child = Killed(
            Command::new(std::env::current_exe().expect("this binary"))
                .args(["child", "--exact", "--nocapture"])
                .env(FOLDER, &live)
                .stdout(Stdio::piped())
                .spawn()
                .expect("started"),
        );
        let out = BufReader::new(child.0.stdout.take().expect("piped"));
        // The kill goes out after this many commits and reaches the child in the middle of whatever
        // it does then.
        let mut left = round * 37 % 101 + 1;
        for line in out.lines() {
            let line = line.expect("text");
            if let Some((_, read)) = line.split_once("read ") {
                let read: u64 = read.parse().expect("a number");
                assert!(read >= said, "{read} is there, {said} was said to be");
                said = read;
            } else if let Some(wrote) = line.strip_prefix("wrote ") {
                said = wrote.parse().expect("a number");
                left = left.saturating_sub(1);
                if left == 0 {
                    // What it said before it died is read to the end.
                    child.0.kill().expect("killed");
                }
            }
        }
    }
    let live = Live::take(&live).expect("free");
    let (_, Count(count)) = Log::open(&live.of_room(ROOM), ROOM, LIMITS).expect("files");
    assert!(
        count >= said && said > 0,
        "{count} is there, {said} was said to be"
    );
}
