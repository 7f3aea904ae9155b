//! The laws of what a browser's clients send: nothing that is not one command reaches the browser,
//! and what does is what was judged.

#[path = "../../crates/usher-cdp/src/chunks.rs"]
#[allow(dead_code)]
mod chunks;
#[path = "../../crates/usher-cdp/src/message.rs"]
#[allow(dead_code)]
mod message;

use bytes::Bytes;
use message::{Command, Front};

/// `input` is a command, what a browser says, and pieces of an older client, all at once.
pub fn cdp(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(command) = Command::read(text)
    {
        // A second reading, which knows the whole grammar and the last of doubled names.
        let whole: serde_json::Value = match serde_json::from_str(text) {
            Ok(whole) => whole,
            // It is deeper than that reader goes, or holds a number beyond its range.
            Err(_) => return,
        };
        assert_eq!(whole["id"].as_i64(), Some(command.id));
        assert_eq!(whole["method"].as_str(), Some(command.method));
        assert_eq!(whole.get("sessionId").and_then(|name| name.as_str()), command.session);
        assert!(!input.contains(&0));
        if let Some(at) = command.params_at.clone() {
            let params: serde_json::Value = serde_json::from_str(&text[at]).expect("JSON");
            assert_eq!(params, whole["params"]);
            let other = command.with_params(text, "{}");
            let again = Command::read(&other).expect("a command");
            assert_eq!((again.id, again.method), (command.id, command.method));
        }
    }
    if let Some((name, at)) = message::session(input) {
        assert!(at <= input.len() && name.len() <= 128);
        if let Ok(serde_json::Value::Object(whole)) = serde_json::from_slice(input) {
            assert_eq!(whole["sessionId"], name);
        }
    }
    if let Front::Answer(_, at) = message::front(input) {
        assert!(at.end < input.len());
    }
    let mut assembler = chunks::Assembler::new(4096);
    for piece in input.chunks(1 + input.len() / 3) {
        match assembler.piece(piece) {
            Ok(Some(text)) => {
                let pieces = chunks::cut(Bytes::from(text.clone()));
                let mut again = chunks::Assembler::new(4096);
                let whole = pieces.filter_map(|piece| again.piece(&piece).expect("well cut")).last();
                assert_eq!(whole, Some(text));
            }
            Ok(None) => {}
            Err(_) => break,
        }
    }
}
