//! In which way a browser host is started: said by whoever starts it, read by the host, and compared
//! when one is found that was started before.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use usher_browsers::settings::{Kind, Settings};

/// How long a host goes on that nobody has asked anything, when no session is on it: longer than a
/// restart takes, and than a session goes on that nobody confirms.
pub(super) const ALONE_MAX: Duration = Duration::from_secs(75);

/// What a host is told at its start, but for its folder and for what may change while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manner {
    /// How browsers are run.
    pub backend: Kind,
    /// One trusted tenant owns every session.
    pub insecure_single_tenant: bool,
    /// How many browsers there may be; `None`: what cores and memory allow.
    pub max: Option<u32>,
    /// The browser's program; `None`: where Debian puts it.
    pub chromium: Option<PathBuf>,
    /// How long it goes on alone; `None`: until it is told to end.
    pub alone_max: Option<Duration>,
}

impl Manner {
    /// The words of the command line.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--backend".into(), self.backend.as_str().into()];
        if self.insecure_single_tenant {
            words.push("--insecure-single-tenant".into());
        }
        if let Some(max) = self.max {
            words.extend(["--max".into(), max.to_string().into()]);
        }
        if let Some(chromium) = &self.chromium {
            words.extend(["--chromium".into(), chromium.into()]);
        }
        if let Some(alone) = self.alone_max {
            words.extend(["--alone-max".into(), alone.as_secs().to_string().into()]);
        }
        words
    }

    /// What tells a host from others: how it was started, and the file that it runs.
    ///
    /// # Errors
    /// The file cannot be looked at.
    pub fn mark(&self, program: &Path) -> io::Result<String> {
        let file = std::fs::metadata(program)?;
        let words = self.words();
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let (secs, nanos) = (file.mtime(), file.mtime_nsec());
        Ok(format!(
            "{}:{}:{secs}.{nanos} {}",
            file.dev(),
            file.ino(),
            words.join(" ")
        ))
    }

    /// Has `settings` say so.
    pub fn apply(&self, settings: &mut Settings) {
        settings.kind = self.backend;
        settings.insecure_single_tenant = self.insecure_single_tenant;
        settings.chromium.clone_from(&self.chromium);
        settings.slots = self.max.unwrap_or(settings.slots);
        settings.alone_max = self.alone_max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_manner_and_another_file_are_another_mark() {
        let plain = Manner {
            backend: Kind::Sandbox,
            insecure_single_tenant: false,
            max: None,
            chromium: None,
            alone_max: Some(ALONE_MAX),
        };
        let this = std::env::current_exe().expect("this test");
        let mark = plain.mark(&this).expect("a mark");
        assert_eq!(
            plain.mark(Path::new("/proc/self/exe")).ok(),
            Some(mark.clone())
        );
        let fuller = Manner {
            max: Some(3),
            ..plain.clone()
        };
        assert_ne!(fuller.mark(&this).ok(), Some(mark.clone()));
        assert_ne!(plain.mark(Path::new("/bin/sh")).ok(), Some(mark));
    }
}
