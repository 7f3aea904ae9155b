//! A writer of MaxMind's database format, so that tests make the files that they read.
//!
//! A tree of bits, each of whose leaves points to a record; records; the metadata. Equal texts are
//! written once and pointed at, as the makers of real files do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

/// A value of a record.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(&'static str),
    Double(f64),
    Float(f32),
    Short(u16),
    Unsigned(u32),
    Long(u64),
    Flag(bool),
    List(Vec<Value>),
    Map(Vec<(&'static str, Value)>),
}

/// What the file says about itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub(super) kind: &'static str,
    /// 4 or 6.
    pub(super) ip_version: u16,
    /// 24, 28 or 32.
    pub(super) record_bits: u16,
}

#[derive(Clone, Copy, PartialEq)]
enum Branch {
    Nothing,
    Node(usize),
    /// Place in the data section.
    Data(usize),
}

/// The file that maps each network to its record; no network may lie in another.
pub(super) fn write(form: Form, records: &[(&str, Value)]) -> Vec<u8> {
    let mut data = Data::default();
    let mut nodes = vec![[Branch::Nothing; 2]];
    for (network, value) in records {
        let at = data.bytes.len();
        data.value(value);
        insert(&mut nodes, path(form, network), at);
    }
    let mut file = Vec::new();
    for node in &nodes {
        let [left, right] = node.map(|branch| match branch {
            Branch::Nothing => nodes.len(),
            Branch::Node(place) => place,
            Branch::Data(at) => nodes.len() + 16 + at,
        } as u32);
        match form.record_bits {
            24 => {
                file.extend_from_slice(&left.to_be_bytes()[1..]);
                file.extend_from_slice(&right.to_be_bytes()[1..]);
            }
            28 => {
                file.extend_from_slice(&left.to_be_bytes()[1..]);
                file.push((left >> 24 << 4 | right >> 24) as u8);
                file.extend_from_slice(&right.to_be_bytes()[1..]);
            }
            _ => {
                file.extend_from_slice(&left.to_be_bytes());
                file.extend_from_slice(&right.to_be_bytes());
            }
        }
    }
    file.extend_from_slice(&[0; 16]);
    file.extend_from_slice(&data.bytes);
    file.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let mut metadata = Data::default();
    metadata.value(&Value::Map(vec![
        ("binary_format_major_version", Value::Short(2)),
        ("binary_format_minor_version", Value::Short(0)),
        ("build_epoch", Value::Long(1_780_000_000)),
        ("database_type", Value::Text(form.kind)),
        ("description", Value::Map(Vec::new())),
        ("ip_version", Value::Short(form.ip_version)),
        ("languages", Value::List(vec![Value::Text("en")])),
        ("node_count", Value::Unsigned(nodes.len() as u32)),
        ("record_size", Value::Short(form.record_bits)),
    ]));
    file.extend_from_slice(&metadata.bytes);
    file
}

/// The bits that lead to a network. In a tree of IPv6, IPv4 hangs below 96 zeros.
fn path(form: Form, network: &str) -> impl Iterator<Item = usize> {
    let network: IpNet = network.parse().expect("network");
    let len = usize::from(network.prefix_len());
    let (bits, width) = match network.addr() {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let zeros = if form.ip_version == 6 { 128 - width } else { 0 };
    let own = (0..len).map(move |step| (bits >> (width - 1 - step) & 1) as usize);
    std::iter::repeat_n(0, zeros).chain(own)
}

fn insert(nodes: &mut Vec<[Branch; 2]>, path: impl Iterator<Item = usize>, at: usize) {
    let mut path = path.peekable();
    let mut place = 0;
    while let Some(bit) = path.next() {
        if path.peek().is_none() {
            assert!(nodes[place][bit] == Branch::Nothing, "networks overlap");
            nodes[place][bit] = Branch::Data(at);
            return;
        }
        place = match nodes[place][bit] {
            Branch::Node(next) => next,
            Branch::Data(_) => panic!("networks overlap"),
            Branch::Nothing => {
                let next = nodes.len();
                nodes.push([Branch::Nothing; 2]);
                nodes[place][bit] = Branch::Node(next);
                next
            }
        };
    }
}

#[derive(Default)]
struct Data {
    bytes: Vec<u8>,
    texts: BTreeMap<&'static str, usize>,
}

impl Data {
    fn value(&mut self, value: &Value) {
        match value {
            Value::Text(text) => self.text(text),
            Value::Double(number) => {
                self.control(3, 8);
                self.bytes.extend_from_slice(&number.to_be_bytes());
            }
            Value::Float(number) => {
                self.control(15, 4);
                self.bytes.extend_from_slice(&number.to_be_bytes());
            }
            Value::Unsigned(number) => {
                self.control(6, 4);
                self.bytes.extend_from_slice(&number.to_be_bytes());
            }
            Value::Short(number) => {
                self.control(5, 2);
                self.bytes.extend_from_slice(&number.to_be_bytes());
            }
            Value::Long(number) => {
                self.control(9, 8);
                self.bytes.extend_from_slice(&number.to_be_bytes());
            }
            Value::Flag(flag) => self.control(14, usize::from(*flag)),
            Value::List(values) => {
                self.control(11, values.len());
                values.iter().for_each(|value| self.value(value));
            }
            Value::Map(fields) => {
                self.control(7, fields.len());
                for (key, value) in fields {
                    self.text(key);
                    self.value(value);
                }
            }
        }
    }

    fn text(&mut self, text: &'static str) {
        if let Some(&at) = self.texts.get(text) {
            let at = u16::try_from(at).expect("a test's file is small");
            assert!(at < 2048, "a test's file is small");
            self.bytes.extend_from_slice(&(0x2000 | at).to_be_bytes());
            return;
        }
        self.texts.insert(text, self.bytes.len());
        self.control(2, text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// The type and the length, before a value.
    fn control(&mut self, kind: u8, len: usize) {
        let (short, more) = match len {
            0..29 => (len as u8, None),
            _ => (
                29,
                Some(u8::try_from(len - 29).expect("a test's value is short")),
            ),
        };
        if kind <= 7 {
            self.bytes.push(kind << 5 | short);
        } else {
            self.bytes.extend_from_slice(&[short, kind - 7]);
        }
        self.bytes.extend(more);
    }
}
