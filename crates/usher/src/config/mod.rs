//! The configuration file: text in, checked settings out, or every fault with its line and column.
//!
//! Four things find faults, and none of them stops the others: the text (`tree`, `environment`),
//! the shapes (`usher_api::wire` for resources, `process` for the rest), the core, which sees the
//! resources together, and the files that the text names. What only follows from a fault that has
//! been told is left out, so that each line names something to change.

mod apart;
mod browsers;
mod environment;
mod files;
mod inside;
mod process;
mod quantity;
mod resources;
#[cfg(test)]
mod tests;
mod tree;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use usher_api::Declared;
use usher_api::wire::reader::{self, Cursor, Mode, Report};
use usher_core::catalog::Catalog;
use usher_edge::geo::Places;
use usher_node::settings::Process;

pub(crate) use apart::Resources;
use tree::{Flaw, Node, Position};

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A configuration that passed every check.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// What traffic is steered by.
    pub(crate) catalog: Arc<Catalog>,
    /// The same, as the API shows it.
    pub(crate) declared: Arc<Declared>,
    /// What belongs to the process.
    pub(crate) process: Process,
    /// Where visitors are, and the file that says so.
    pub(crate) places: Option<(PathBuf, Arc<Places>)>,
    /// What is allowed and probably not meant; a line each.
    pub(crate) warnings: Vec<String>,
}

impl Loaded {
    /// The files that it names: a change of one of them is a change of the configuration.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let certificates = self.process.certificates.iter();
        let certificates = certificates.flat_map(|pair| [pair.cert.clone(), pair.key.clone()]);
        let draft = self.catalog.draft();
        let zones = draft.zones.iter().map(|zone| &zone.tls);
        let trust = zones.chain(draft.pools.iter().map(|pool| &pool.tls));
        let trust = trust.flat_map(|tls| [&tls.ca, &tls.client_cert, &tls.client_key]);
        let mut files: Vec<_> = certificates
            .chain(self.places.iter().map(|(path, _)| path.clone()))
            .chain(trust.flatten().map(PathBuf::from))
            .collect();
        files.sort();
        files.dedup();
        files
    }
}

/// Where a text comes from and what surrounds it.
pub(crate) struct Source<'s> {
    /// The path as the user gave it; messages begin with it.
    pub(crate) name: &'s str,
    /// What relative paths in the text are relative to.
    pub(crate) folder: &'s Path,
    /// The environment.
    pub(crate) variable: &'s dyn Fn(&str) -> Option<String>,
}

/// Everything that is wrong with one text, in the order of its lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    name: String,
    list: Vec<(Position, String)>,
}

impl Findings {
    fn new(name: &str, mut list: Vec<(Position, String)>) -> Findings {
        // Stable: what stands at one place keeps the order in which it was found.
        list.sort_by_key(|(at, _)| *at);
        list.dedup();
        Findings {
            name: name.to_owned(),
            list,
        }
    }

    /// A line each: `usher.yaml:17:9: pool eu: endpoint a: weight 1.4 is outside 0..1`.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let line = |(at, message): &(Position, String)| {
            format!("{}:{}:{}: {message}", self.name, at.line, at.column)
        };
        self.list.iter().map(line)
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Faults {
    /// The file cannot be read.
    #[error("{path}: {}", plain(source))]
    Read {
        /// As the user gave it.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The file is too large to be meant.
    #[error("{path}: larger than {} MiB", FILE_BYTES_MAX >> 20)]
    TooLarge {
        /// As the user gave it.
        path: String,
    },
    /// What it says is wrong.
    #[error("{}", .0.lines().collect::<Vec<_>>().join("\n"))]
    Text(Findings),
}

impl Faults {
    /// A line for each.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Faults::Read { .. } | Faults::TooLarge { .. } => vec![self.to_string()],
            Faults::Text(findings) => findings.lines().collect(),
        }
    }
}

/// The words of the system without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

/// Reads and checks the file at `path` with the environment of this process.
///
/// # Errors
/// See [`Faults`].
pub(crate) fn load(path: &Path) -> Result<Loaded, Faults> {
    let name = path.display().to_string();
    let bytes = bytes_of(&name, std::fs::File::open(path))?;
    let variable = |name: &str| std::env::var(name).ok();
    load_bytes(
        &bytes,
        &Source {
            name: &name,
            folder: &folder(path),
            variable: &variable,
        },
    )
}

/// All that comes from there, if it is not too much.
fn bytes_of(name: &str, from: io::Result<impl io::Read>) -> Result<Vec<u8>, Faults> {
    let read = |source| Faults::Read {
        path: name.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    from.map_err(read)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Faults::TooLarge {
            path: name.to_owned(),
        });
    }
    Ok(bytes)
}

/// The folder of the file, made absolute so that it outlives a change of the working directory.
fn folder(path: &Path) -> PathBuf {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

fn load_bytes(bytes: &[u8], source: &Source<'_>) -> Result<Loaded, Faults> {
    let text = decoded(bytes, source.name)?;
    load_text(text, source).map_err(Faults::Text)
}

/// The bytes as text.
fn decoded<'b>(bytes: &'b [u8], name: &str) -> Result<&'b str, Faults> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let last = before.rsplit('\n').next().unwrap_or_default();
            let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            let at = Position {
                line: narrow(before.matches('\n').count() + 1),
                column: narrow(last.chars().count() + 1),
            };
            let list = vec![(at, "not UTF-8 from here on".to_owned())];
            Err(Faults::Text(Findings::new(name, list)))
        }
    }
}

/// Checks a text.
///
/// # Errors
/// Every fault.
pub(crate) fn load_text(text: &str, source: &Source<'_>) -> Result<Loaded, Findings> {
    let told = |flaw: Flaw| (flaw.at, flaw.message);
    let mut flaws = Vec::new();
    let expand = |text: &str| environment::expand(text, source.variable);
    let tree = match tree::parse(text, &expand, &mut flaws) {
        Ok(tree) => tree,
        // Nothing after this place can be read.
        Err(flaw) => {
            flaws.push(flaw);
            let list = flaws.into_iter().map(told).collect();
            return Err(Findings::new(source.name, list));
        }
    };
    let mut faults: Vec<_> = flaws.into_iter().map(told).collect();
    let at = |found: &reader::Fault, tree: &Node| placed(found, text, tree);
    match check(&tree, source) {
        Ok(Checked {
            catalog,
            declared,
            process,
            places,
            notes,
        }) if faults.is_empty() => {
            let list = notes.iter().map(|note| at(note, &tree)).collect();
            let warnings = Findings::new(source.name, list).lines().collect();
            Ok(Loaded {
                catalog: Arc::new(catalog),
                declared: Arc::new(declared),
                process,
                places,
                warnings,
            })
        }
        Ok(_) => Err(Findings::new(source.name, faults)),
        Err(found) => {
            faults.extend(found.iter().map(|fault| at(fault, &tree)));
            Err(Findings::new(source.name, faults))
        }
    }
}

/// Where the text says what was found, and what that is.
fn placed(found: &reader::Fault, text: &str, tree: &Node) -> (Position, String) {
    let begins = tree.locate(&found.pointer, found.at_key);
    let place = match (found.inside, tree.text(&found.pointer)) {
        (0, _) | (_, None) => begins,
        (skip, Some(value)) => inside::inside(text, begins, value, skip),
    };
    (place, found.to_string())
}

struct Checked {
    catalog: Catalog,
    declared: Declared,
    process: Process,
    places: Option<(PathBuf, Arc<Places>)>,
    notes: Vec<reader::Fault>,
}

fn check(tree: &Node, source: &Source<'_>) -> Result<Checked, Vec<reader::Fault>> {
    let mut report = Report::new(Mode::File);
    let json = tree.to_json();
    report.settle(json.unclear);
    report.loosen(json.expanded);
    let Some(root) = Cursor::root(&report, &json.value).object(&process::ROOT) else {
        return Err(report.into_parts().0);
    };
    let process = process::read(&root, source.folder);
    let (draft, places) = resources::read(&root, source.folder);
    let database = files::check(&report, &root, source.folder, &draft, &places);
    let catalog = match Catalog::check(draft.clone()) {
        Ok(catalog) => Some(catalog),
        Err(faults) => {
            faults
                .iter()
                .for_each(|fault| places.tell(&report, &draft, fault));
            None
        }
    };
    let clean = report.is_clean();
    let (faults, mut notes) = report.into_parts();
    match catalog.filter(|_| clean) {
        Some(catalog) => {
            let odd = catalog.warnings();
            notes.extend(odd.iter().map(|warning| places.note(&draft, warning)));
            let declared = Declared::new(draft, &json.value, source.name);
            Ok(Checked {
                catalog,
                declared,
                process,
                places: database,
                notes,
            })
        }
        None => Err(faults),
    }
}
