//! Stands in for Chromium where many browsers are needed, or one that costs nothing.
//!
//! It speaks the browser's protocol over standard input and output, which a script lays onto the
//! descriptors that a host gives to browsers (`exec standin <&3 >&4`). It answers every command at
//! once, draws what the canary asks for, and floods when it is told to: `Stream.start` with `count`
//! and `bytes` is answered, and followed by so many events of that size. It starts no page and knows
//! no address, so what it says of anything else is `{}`.

use std::io::{self, BufRead, Write};

use base64::Engine as _;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};

/// Pixels in a row of the picture, and rows.
const SIDE: u32 = 64;

#[derive(Default)]
struct Browser {
    parts: u32,
    html: String,
}

fn main() -> io::Result<()> {
    let mut input = io::BufReader::with_capacity(1 << 16, io::stdin().lock());
    let mut output = io::stdout().lock();
    let mut browser = Browser::default();
    let mut text = Vec::new();
    loop {
        text.clear();
        if input.read_until(0, &mut text)? == 0 || text.pop() != Some(0) {
            return Ok(());
        }
        let command: Value = serde_json::from_slice(&text).map_err(io::Error::other)?;
        let method = command["method"].as_str().unwrap_or_default();
        let params = &command["params"];
        let part = command["sessionId"].as_str();
        let result = browser.answer(method, params);
        let mut answer = written(
            &format!(r#""id":{},"result":{result}"#, command["id"]),
            part,
        );
        if method == "Stream.start" {
            output.write_all(&answer)?;
            let (count, bytes) = (params["count"].as_u64(), params["bytes"].as_u64());
            let data = "x".repeat(bytes.unwrap_or(0) as usize);
            let event = format!(r#""method":"Stream.part","params":{{"data":"{data}"}}"#);
            answer = written(&event, part);
            for _ in 0..count.unwrap_or(0) {
                output.write_all(&answer)?;
            }
        } else {
            output.write_all(&answer)?;
        }
        output.flush()?;
    }
}

/// A message of a part, as a browser writes it: the part's name is the last member.
fn written(members: &str, part: Option<&str>) -> Vec<u8> {
    let part = part.map_or(String::new(), |part| format!(r#","sessionId":"{part}""#));
    format!("{{{members}{part}}}\0").into_bytes()
}

impl Browser {
    fn answer(&mut self, method: &str, params: &Value) -> Value {
        match method {
            "Browser.getVersion" => json!({
                "protocolVersion": "1.3", "product": "StandIn/1.0", "revision": "",
                "userAgent": "StandIn", "jsVersion": "1",
            }),
            "Target.attachToBrowserTarget" | "Target.attachToTarget" => {
                json!({"sessionId": self.name("S")})
            }
            "Target.createTarget" => json!({"targetId": self.name("T")}),
            "Target.getTargets" => json!({"targetInfos": [{
                "targetId": "T0", "type": "page", "title": "", "url": "about:blank",
                "attached": false, "canAccessOpener": false,
            }]}),
            "Page.setDocumentContent" => {
                params["html"]
                    .as_str()
                    .unwrap_or_default()
                    .clone_into(&mut self.html);
                json!({})
            }
            "Runtime.evaluate" => self.evaluated(params["expression"].as_str().unwrap_or_default()),
            "Page.captureScreenshot" => {
                let png = picture(self.colour());
                json!({"data": base64::engine::general_purpose::STANDARD.encode(png)})
            }
            _ => json!({}),
        }
    }

    fn name(&mut self, kind: &str) -> String {
        self.parts += 1;
        format!("{kind}{}", self.parts)
    }

    /// What the canary and the watch over ready browsers ask.
    fn evaluated(&self, expression: &str) -> Value {
        match expression {
            "6*7" => json!({"result": {"type": "number", "value": 42}}),
            _ if expression.contains("textContent") => {
                let text = self.html.split_once("id=text").map_or("", |(_, rest)| rest);
                let text = text.split(['>', '<']).nth(1);
                json!({"result": {"type": "string", "value": text}})
            }
            _ => json!({"result": {"type": "undefined"}}),
        }
    }

    /// Of the page's background.
    fn colour(&self) -> [u8; 3] {
        let told = self.html.split_once("rgb(").map_or("", |(_, rest)| rest);
        let told = told.split(')').next().unwrap_or_default();
        let mut channels = told.split(',').map(|one| one.trim().parse().unwrap_or(0));
        std::array::from_fn(|_| channels.next().unwrap_or(0))
    }
}

/// A picture of one colour.
fn picture([red, green, blue]: [u8; 3]) -> Vec<u8> {
    let mut row = vec![0];
    row.extend([red, green, blue].repeat(SIDE as usize));
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed
        .write_all(&row.repeat(SIDE as usize))
        .expect("written to memory");
    let mut header = [SIDE.to_be_bytes(), SIDE.to_be_bytes()].concat();
    header.extend([8, 2, 0, 0, 0]);
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, body) in [
        (b"IHDR", header),
        (b"IDAT", packed.finish().expect("written to memory")),
        (b"IEND", Vec::new()),
    ] {
        let mut sum = flate2::Crc::new();
        sum.update(kind);
        sum.update(&body);
        png.extend((body.len() as u32).to_be_bytes());
        png.extend_from_slice(kind);
        png.extend(&body);
        png.extend(sum.sum().to_be_bytes());
    }
    png
}
