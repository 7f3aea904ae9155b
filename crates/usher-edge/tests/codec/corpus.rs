//! The corpus of the fuzz targets as ordinary tests. A file lies in the folder of the end that is
//! expected of it: the word of a fault, or how the connection ended. What it tries to smuggle asks
//! for `/smuggled` or answers 299, and must not be understood as a message.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::http1::BodyFault;
use super::laws::{self, ASKED};
use super::walk::{End, chunked, requests, responses};

#[test]
fn requests_end_as_expected() {
    for case in cases("request").unwrap() {
        let (messages, end) = requests(&case.bytes, &[]);
        assert_eq!(
            word(end),
            case.expected,
            "{}: {messages:?}",
            case.path.display()
        );
        let smuggled = messages
            .iter()
            .any(|message| message.path.starts_with(b"/smuggled"));
        assert!(!smuggled, "{}: {messages:?}", case.path.display());
        for sizes in SPLITS {
            laws::of_requests(&case.bytes, sizes);
        }
    }
}

#[test]
fn responses_end_as_expected() {
    for case in cases("response").unwrap() {
        let (messages, end) = responses(&case.bytes, ASKED[0], &[]);
        assert_eq!(
            word(end),
            case.expected,
            "{}: {messages:?}",
            case.path.display()
        );
        let smuggled = messages.iter().any(|message| message.start == b"299");
        assert!(!smuggled, "{}: {messages:?}", case.path.display());
        for sizes in SPLITS {
            laws::of_responses(&case.bytes, sizes);
        }
    }
}

#[test]
fn chunked_bodies_end_as_expected() {
    for case in cases("chunked").unwrap() {
        let end = chunked(&case.bytes, &[]).map_or_else(BodyFault::as_str, |_| "clean");
        assert_eq!(end, case.expected, "{}", case.path.display());
        for sizes in SPLITS {
            laws::of_chunked(&case.bytes, sizes);
        }
    }
}

const SPLITS: &[&[usize]] = &[&[2], &[3, 1], &[7, 2, 16]];

fn word(end: End) -> &'static str {
    match end {
        End::Clean => "clean",
        End::Head => "unfinished",
        End::Closed => "closed",
        End::Switched => "switched",
        End::Fault(word) => word,
    }
}

struct Case {
    path: PathBuf,
    expected: String,
    bytes: Vec<u8>,
}

/// `fuzz/corpus/<kind>/<expected>/<name>`.
fn cases(kind: &str) -> io::Result<Vec<Case>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(kind);
    let mut cases = Vec::new();
    for folder in fs::read_dir(&root)? {
        let folder = folder?;
        for file in fs::read_dir(folder.path())? {
            let path = file?.path();
            cases.push(Case {
                bytes: fs::read(&path)?,
                expected: folder.file_name().to_string_lossy().into_owned(),
                path,
            });
        }
    }
    assert!(!cases.is_empty(), "no cases in {}", root.display());
    Ok(cases)
}
