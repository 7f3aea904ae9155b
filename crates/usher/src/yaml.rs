//! Writes JSON as YAML that people read: in blocks, with quotes only where the text needs them.
//!
//! What it writes is read back as the same value, `${` included, which the file would otherwise
//! take for a variable.

use std::fmt::Write as _;

use serde_json::Value;

/// The document, with a line feed at its end.
pub(crate) fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if map.is_empty() => out.push_str("{}\n"),
        Value::Array(items) if items.is_empty() => out.push_str("[]\n"),
        Value::Object(_) | Value::Array(_) => block(value, 0, &mut out),
        scalar => out = flow(scalar) + "\n",
    }
    out
}

fn block(value: &Value, indent: usize, out: &mut String) {
    let margin = " ".repeat(indent);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let _ = write!(out, "{margin}{}:", text(key));
                below(value, indent + 2, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                let _ = write!(out, "{margin}-");
                // The first key of an item stands behind its dash.
                let from = out.len();
                below(item, indent + 2, out);
                if out[from..].starts_with('\n') {
                    out.replace_range(from..from + 3 + indent, " ");
                }
            }
        }
        scalar => {
            let _ = writeln!(out, "{margin}{}", flow(scalar));
        }
    }
}

/// What follows a key or a dash.
fn below(value: &Value, indent: usize, out: &mut String) {
    if is_short(value) {
        let _ = writeln!(out, " {}", flow(value));
    } else {
        out.push('\n');
        block(value, indent, out);
    }
}

/// Scalars, what is empty, and lists of scalars stand on one line.
fn is_short(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.iter().any(|it| it.is_array() || it.is_object()),
        Value::Object(map) => map.is_empty(),
        _ => true,
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(own) => text(own),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

fn text(own: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let words = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let is_plain = own.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && own.chars().all(plain)
        && !words.contains(&own.to_ascii_lowercase().as_str());
    if is_plain {
        return own.to_owned();
    }
    let quoted = Value::from(own.replace("${", "$${")).to_string();
    // What JSON leaves as it is, and YAML does not take or people do not see.
    let hidden = |c: char| {
        matches!(
            c,
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}'
        )
    };
    let write = |mut out: String, c: char| {
        match hidden(c) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
        out
    };
    quoted.chars().fold(String::new(), write)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_reads_well() {
        let value = json!({
            "pools": {"eu": {
                "monitor": "web",
                "origins": [{"name": "a", "address": "192.0.2.1", "weight": 0.5}, {"name": "b", "header": {"Host": ["x", "on"]}}],
                "networks": [],
            }},
            "load_balancers": {"*.example.com": {"default_pools": ["eu", "1"], "ttl": 30, "usher": {}}},
            "text": "${A} \"x\": \n\u{7f}",
        });
        let yaml = "\
pools:
  eu:
    monitor: web
    origins:
      - name: a
        address: \"192.0.2.1\"
        weight: 0.5
      - name: b
        header:
          Host: [x, \"on\"]
    networks: []
load_balancers:
  \"*.example.com\":
    default_pools: [eu, \"1\"]
    ttl: 30
    usher: {}
text: \"$${A} \\\"x\\\": \\n\\u007f\"
";
        assert_eq!(write(&value), yaml);
        assert_eq!(write(&json!({})), "{}\n");
    }
}
