//! The calls of browsers, as far as they are known before they are answered: what a token needs for
//! each, and what the description of the API says of it.
//!
//! Which of them are built is the front's to say.

use http::Method;

use crate::rest::matched;

/// One method of one path.
pub(crate) struct Line {
    pub(crate) method: Method,
    /// From the prefix on; `{name}` stands for one segment.
    pub(crate) path: &'static str,
    /// Its name in the description.
    pub(crate) operation: &'static str,
    /// What it does, for people.
    pub(crate) summary: &'static str,
    pub(crate) does: Does,
}

/// What a call does, which is what a token must be allowed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    /// Shows.
    Read,
    /// Changes something, also where the method is that of reading: it is what the clients send.
    Edit,
    /// Becomes a WebSocket, over which anything may be done.
    Connect,
}

/// What tells an address with a path secret in it.
pub(super) const VERSION: &str = "devtools/browser/{session_id}/json/version";
/// What a path secret opens.
pub(super) const BROWSER: &str = "devtools/browser/{session_id}";

const UNBUILT: &str = "Is not built yet";

/// What is done to a path and by which method, in the order in which it is described.
pub(crate) static LINES: [Line; 31] = [
    line(
        Method::POST,
        "devtools/browser",
        "acquire_browser",
        "Gives a browser: its session, and the address of its WebSocket",
        Does::Edit,
    ),
    line(
        Method::GET,
        "devtools/browser",
        "acquire_and_connect_browser",
        "Gives a browser and becomes a WebSocket to it",
        Does::Connect,
    ),
    line(
        Method::GET,
        BROWSER,
        "connect_browser",
        "Becomes a WebSocket to the browser of a session",
        Does::Connect,
    ),
    line(
        Method::DELETE,
        BROWSER,
        "close_browser",
        "Ends a session and its browser",
        Does::Edit,
    ),
    line(
        Method::GET,
        "devtools/browser/{session_id}/page/{target_id}",
        "connect_browser_page",
        "Becomes a WebSocket to one page of a browser",
        Does::Connect,
    ),
    line(
        Method::GET,
        "devtools/session",
        "list_browser_sessions",
        "Lists the sessions that are open, newest first",
        Does::Read,
    ),
    line(
        Method::GET,
        "devtools/session/{session_id}",
        "get_browser_session",
        "Shows a session, also one that has ended",
        Does::Read,
    ),
    line(
        Method::GET,
        "devtools/browser/{session_id}/json",
        "list_browser_pages",
        "Lists what can be connected to in a browser",
        Does::Read,
    ),
    line(
        Method::GET,
        "devtools/browser/{session_id}/json/list",
        "list_browser_targets",
        "Lists what can be connected to in a browser",
        Does::Read,
    ),
    line(
        Method::GET,
        "devtools/browser/{session_id}/json/list/{target_id}",
        "get_browser_target",
        "Shows one page of a browser",
        Does::Read,
    ),
    line(
        Method::PUT,
        "devtools/browser/{session_id}/json/new",
        "open_browser_page",
        "Opens a page, at ?url=",
        Does::Edit,
    ),
    line(
        Method::GET,
        "devtools/browser/{session_id}/json/activate/{target_id}",
        "activate_browser_page",
        "Brings a page to the front",
        Does::Edit,
    ),
    line(
        Method::GET,
        "devtools/browser/{session_id}/json/close/{target_id}",
        "close_browser_page",
        "Closes a page",
        Does::Edit,
    ),
    line(
        Method::DELETE,
        "devtools/browser/{session_id}/json/close/{target_id}",
        "delete_browser_page",
        "Closes a page",
        Does::Edit,
    ),
    line(
        Method::GET,
        VERSION,
        "get_browser_version",
        "Shows the versions of a browser, and an address that opens its WebSocket once",
        Does::Read,
    ),
    line(
        Method::GET,
        "devtools/browser/{session_id}/json/protocol",
        "get_browser_protocol",
        "Describes the protocol that a browser speaks",
        Does::Read,
    ),
    line(
        Method::POST,
        "devtools/browser/{session_id}/live_view",
        "view_browser_live",
        UNBUILT,
        Does::Edit,
    ),
    line(
        Method::POST,
        "screenshot",
        "take_screenshot",
        "Draws one page and answers with the picture",
        Does::Edit,
    ),
    action("pdf", "print_pdf"),
    action("content", "get_content"),
    action("markdown", "get_markdown"),
    action("links", "get_links"),
    action("scrape", "scrape"),
    action("json", "extract_json"),
    action("snapshot", "take_snapshot"),
    action("accessibilityTree", "get_accessibility_tree"),
    line(Method::POST, "crawl", "start_crawl", UNBUILT, Does::Edit),
    line(
        Method::GET,
        "crawl/{job_id}",
        "get_crawl",
        UNBUILT,
        Does::Read,
    ),
    line(
        Method::DELETE,
        "crawl/{job_id}",
        "cancel_crawl",
        UNBUILT,
        Does::Edit,
    ),
    line(
        Method::GET,
        "recording/{session_id}",
        "get_recording",
        UNBUILT,
        Does::Read,
    ),
    line(
        Method::GET,
        "recording/{session_id}/network",
        "get_recording_network",
        UNBUILT,
        Does::Read,
    ),
];

const fn line(
    method: Method,
    path: &'static str,
    operation: &'static str,
    summary: &'static str,
    does: Does,
) -> Line {
    Line {
        method,
        path,
        operation,
        summary,
        does,
    }
}

const fn action(name: &'static str, operation: &'static str) -> Line {
    line(Method::POST, name, operation, UNBUILT, Does::Edit)
}

/// The calls of a path, below the prefix. Of two that fit, none is less exact than the other.
pub(super) fn of(path: &str) -> impl Iterator<Item = &'static Line> {
    LINES
        .iter()
        .filter(move |line| matched(line.path, path).is_some())
}

/// What stands for the one `{name}` of `template`.
pub(super) fn only<'a>(template: &'static str, path: &'a str) -> Option<&'a str> {
    match matched(template, path)?.as_slice() {
        [(_, value)] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_is_that_of_two_templates() {
        for line in &LINES {
            let path = line.path.replace(['{', '}'], "");
            let fits: Vec<&str> = of(&path).map(|line| line.path).collect();
            assert!(
                fits.iter().all(|&template| template == line.path),
                "{path}: {fits:?}"
            );
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let mut names: Vec<&str> = LINES.iter().map(|line| line.operation).collect();
        names.extend(
            crate::rest::routes()
                .iter()
                .map(|route| route.operation.clone().leak() as &str),
        );
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }

    #[test]
    fn what_changes_something_is_no_reading_whatever_its_method() {
        for (path, does) in [
            ("devtools/browser", Does::Connect),
            ("devtools/browser/s", Does::Connect),
            ("devtools/browser/s/page/t", Does::Connect),
            ("devtools/browser/s/json/activate/t", Does::Edit),
            ("devtools/browser/s/json/close/t", Does::Edit),
            ("devtools/browser/s/json", Does::Read),
            ("devtools/browser/s/json/version", Does::Read),
            ("devtools/session", Does::Read),
        ] {
            let line = of(path).find(|line| line.method == Method::GET);
            assert_eq!(line.map(|line| line.does), Some(does), "{path}");
        }
    }
}
