//! A file of resources alone, as `usher export` writes it: the same words as the configuration
//! file's, and nothing of what belongs to the process.

use std::path::Path;

use serde_json::Value;
use usher_api::inventory::Section;
use usher_api::wire::reader::{Cursor, Fault, Mode, Report};

use super::tree::{self, Node};
use super::{Faults, Findings, bytes_of, decoded, environment, placed, process, resources};

/// What the file says, and where.
pub(crate) struct Resources {
    name: String,
    text: String,
    tree: Node,
    /// The file as JSON.
    pub(crate) value: Value,
}

impl Resources {
    /// Reads the file at `path`; `-` is the standard input.
    ///
    /// # Errors
    /// See [`Faults`].
    pub(crate) fn load(path: &Path) -> Result<Resources, Faults> {
        let name = path.display().to_string();
        let bytes = match name.as_str() {
            "-" => bytes_of("stdin", Ok(std::io::stdin().lock()))?,
            _ => bytes_of(&name, std::fs::File::open(path))?,
        };
        let text = decoded(&bytes, &name)?;
        Resources::read(&name, text, &|name| std::env::var(name).ok()).map_err(Faults::Text)
    }

    fn read(
        name: &str,
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Resources, Findings> {
        let mut flaws = Vec::new();
        let expand = |text: &str| environment::expand(text, variable);
        let tree = tree::parse(text, &expand, &mut flaws);
        let tree = tree.map_err(|flaw| Findings::new(name, vec![(flaw.at, flaw.message)]))?;
        let json = tree.to_json();
        let mut report = Report::new(Mode::File);
        report.settle(json.unclear);
        report.loosen(json.expanded);
        if let Some(root) = Cursor::root(&report, &json.value).object(&process::ROOT) {
            let keys = json
                .value
                .as_object()
                .into_iter()
                .flat_map(|map| map.keys());
            for key in keys.filter(|key| process::ROOT.keys.iter().any(|it| it.name == **key)) {
                if Section::ALL.iter().all(|section| section.key() != key) {
                    report.fault(Fault {
                        pointer: format!("/{key}"),
                        at_key: true,
                        inside: 0,
                        place: String::new(),
                        message: format!(
                            "{key} is set in the node's own file; here are resources only"
                        ),
                    });
                }
            }
            // For the faults: what the resources mean is the node's to say.
            let _draft = resources::read(&root, Path::new("."));
        }
        let mut list: Vec<_> = (flaws.into_iter().map(|flaw| (flaw.at, flaw.message))).collect();
        let (faults, _) = report.into_parts();
        list.extend(faults.iter().map(|fault| placed(fault, text, &tree)));
        if !list.is_empty() {
            return Err(Findings::new(name, list));
        }
        Ok(Resources {
            name: name.to_owned(),
            text: text.to_owned(),
            tree,
            value: json.value,
        })
    }

    /// Whether there is nothing but space and comments in it.
    pub(crate) fn is_blank(&self) -> bool {
        let mut lines = self.text.lines().map(str::trim);
        lines.all(|line| line.is_empty() || line.starts_with('#'))
    }

    /// The faults with the places of the file.
    pub(crate) fn faults(&self, faults: &[Fault]) -> Faults {
        let list = faults.iter().map(|it| placed(it, &self.text, &self.tree));
        Faults::Text(Findings::new(&self.name, list.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        let read = Resources::read("pools.yaml", text, &|_| None);
        read.err()
            .map_or(Vec::new(), |found| found.lines().collect())
    }

    #[test]
    fn resources_are_read_and_nothing_else() {
        let good = "pools:\n  eu: {origins: [{name: a, address: 192.0.2.1}]}\n";
        assert_eq!(lines(good), [""; 0]);
        assert_eq!(
            lines(
                "listen: {http: []}\npools:\n  eu: {origins: [{name: a, address: 192.0.2.1, weight: x}], colour: red}\n"
            ),
            [
                "pools.yaml:1:1: listen is set in the node's own file; here are resources only",
                "pools.yaml:3:56: pool eu: endpoint a: weight must be a number, not text",
                "pools.yaml:3:61: pool eu: unknown key \"colour\"",
            ]
        );
    }
}
