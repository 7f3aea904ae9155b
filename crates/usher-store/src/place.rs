//! Where a store is: `store.url`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::fault::StoreError;
use crate::sqlite::Sqlite;
use crate::store::{Retention, Store};

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A SQLite database in a file.
    Sqlite(PathBuf),
}

/// Why text names no store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceFault {
    /// A scheme that is named in the documents and not built.
    #[error("store {0:?}: postgres is not built yet; use sqlite:PATH")]
    Unbuilt(String),
    /// No scheme, or one that nobody knows.
    #[error("store {0:?} is not sqlite:PATH")]
    Scheme(String),
    /// No path.
    #[error("store {0:?} names no file")]
    Empty(String),
}

impl Place {
    /// Reads `sqlite:PATH`; a relative path starts at `base`. The path is taken as it is: nothing in
    /// it is an option.
    ///
    /// # Errors
    /// The text names no store that can be opened. A password in it is not repeated.
    pub fn parse(text: &str, base: &Path) -> Result<Place, PlaceFault> {
        let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
        match scheme {
            "sqlite" => {
                // `sqlite://var/usher.db` is common usage for the same.
                let path = rest.strip_prefix("//").unwrap_or(rest);
                if path.is_empty() || path.ends_with('/') {
                    return Err(PlaceFault::Empty(text.to_owned()));
                }
                Ok(Place::Sqlite(base.join(path)))
            }
            "postgres" | "postgresql" => Err(PlaceFault::Unbuilt(format!("{scheme}:..."))),
            "" => Err(PlaceFault::Scheme(text.to_owned())),
            _ => Err(PlaceFault::Scheme(format!("{scheme}:..."))),
        }
    }

    /// Opens the store that is there, or makes one. Waits for up to `patience` while another process
    /// still owns it. The store works on the runtime that calls this.
    ///
    /// # Errors
    /// It cannot be opened, and is as it was.
    pub async fn open(
        &self,
        retention: Retention,
        patience: Duration,
    ) -> Result<Arc<dyn Store>, StoreError> {
        match self {
            Place::Sqlite(path) => Ok(Arc::new(Sqlite::open(path, retention, patience).await?)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Sqlite(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_relative_to_the_configuration() {
        let base = Path::new("/etc/usher");
        for (text, path) in [
            ("sqlite:var/usher.db", "/etc/usher/var/usher.db"),
            ("sqlite://var/usher.db", "/etc/usher/var/usher.db"),
            ("sqlite:/var/lib/usher.db", "/var/lib/usher.db"),
            ("sqlite:///var/lib/usher.db", "/var/lib/usher.db"),
            ("sqlite:a?mode=ro", "/etc/usher/a?mode=ro"),
        ] {
            assert_eq!(
                Place::parse(text, base),
                Ok(Place::Sqlite(path.into())),
                "{text}"
            );
        }
    }

    #[test]
    fn what_names_no_store_is_refused_and_no_password_repeated() {
        let refused = |text: &str| {
            Place::parse(text, Path::new("."))
                .expect_err(text)
                .to_string()
        };
        assert_eq!(
            refused("postgres://u:hunter2@db/usher"),
            "store \"postgres:...\": postgres is not built yet; use sqlite:PATH"
        );
        assert_eq!(refused("usher.db"), "store \"usher.db\" is not sqlite:PATH");
        assert_eq!(
            refused("mysql://u:hunter2@db"),
            "store \"mysql:...\" is not sqlite:PATH"
        );
        for text in ["sqlite:", "sqlite://", "sqlite:var/"] {
            assert!(refused(text).ends_with("names no file"), "{text}");
        }
    }
}
