//! The shape of files: what review would otherwise have to say again and again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A file longer than this hides its parts from the reader; it splits along one of them.
const LINES_MAX: usize = 1000;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 7] = [
    "util", "utils", "helper", "helpers", "manager", "common", "misc",
];

/// Folders of one machine. Spelled in pieces, so that this file does not hold what it forbids.
const MACHINE_FOLDERS: [[&str; 2]; 3] = [["/ro", "ot/"], ["/wo", "rk/"], ["/ho", "me/"]];

/// Every tracked file that breaks a rule of shape.
pub(crate) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for path in tracked(root)? {
        // Binary files, and files deleted but not yet committed, have no shape to speak of.
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else {
            continue;
        };
        let found = of_text(&path, &text).into_iter().chain(of_name(&path));
        faults.extend(found.map(|fault| format!("{}: {fault}", path.display())));
    }
    Ok(faults)
}

fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.split_terminator('\0').map(PathBuf::from).collect())
}

fn of_text(path: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for folder in MACHINE_FOLDERS.map(|pieces| pieces.concat()) {
        if let Some(line) = text.lines().position(|line| names_folder(line, &folder)) {
            faults.push(format!(
                "line {}: a path of one machine ({folder})",
                line + 1
            ));
        }
    }
    if path.extension().is_some_and(|extension| extension == "rs") {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            faults.push(format!("{lines} lines, more than {LINES_MAX}"));
        }
        if !text.trim_start().starts_with("//!") {
            faults.push("does not open with `//!` that says why it is as it is".to_owned());
        }
    }
    faults
}

/// True when the folder stands there as an absolute path, not inside a longer one or a URL.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before
            .is_some_and(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '}' | ')'))
    })
}

fn of_name(path: &Path) -> Option<String> {
    if path.extension().is_none_or(|extension| extension != "rs") {
        return None;
    }
    path.iter()
        .filter_map(|part| Path::new(part).file_stem()?.to_str())
        .find(|stem| stem.split('_').any(|word| EMPTY_NAMES.contains(&word)))
        .map(|stem| format!("the name `{stem}` says nothing about what is inside"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_its_reason_is_a_fault() {
        assert_eq!(
            of_text(Path::new("a.rs"), "//! why\nfn f() {}\n"),
            Vec::<String>::new()
        );
        assert_eq!(of_text(Path::new("a.rs"), "fn f() {}\n").len(), 1);
        assert_eq!(of_text(Path::new("a.md"), "fn f() {}\n").len(), 0);
    }

    #[test]
    fn a_file_may_be_long_but_not_endless() {
        let long = "//! why\n".to_owned() + &"\n".repeat(LINES_MAX - 1);
        assert_eq!(of_text(Path::new("a.rs"), &long).len(), 0);
        assert_eq!(of_text(Path::new("a.rs"), &(long + "\n")).len(), 1);
    }

    #[test]
    fn machine_paths_are_found_and_like_words_are_not() {
        let folder = ["/wo", "rk/"].concat();
        assert!(names_folder(&format!("cd {folder}main"), &folder));
        assert!(!names_folder(
            &format!("https://example.com{folder}"),
            &folder
        ));
        assert!(!names_folder(&format!("$(pwd){folder}"), &folder));
    }

    #[test]
    fn empty_names_are_found_as_words() {
        assert!(of_name(Path::new("crates/a/src/string_utils.rs")).is_some());
        assert!(of_name(Path::new("crates/a/src/util/mod.rs")).is_some());
        assert!(of_name(Path::new("crates/a/src/utility.rs")).is_none());
    }
}
