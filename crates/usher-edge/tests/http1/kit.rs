//! A front with real sockets, endpoints that follow a script, and clients that write bytes.
//!
//! Shared by the tests of this folder and its neighbours, so each uses a part of it.
//!
//! Scripts run in threads and block, so a test reads in the order in which things happen on the
//! wire. Every wait has a deadline.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use usher_core::catalog::{
    Address, Affinity, Areas, Balancer, Catalog, Draft, Endpoint, EndpointTls, HostPattern,
    Monitoring, Node, Pool, Reference, Shedding, Ssl, Zone,
};
use usher_core::id::{Id, Kind};
use usher_core::request::Scheme;
use usher_core::snapshot::Snapshot;
use usher_core::steering::{EndpointSteering, PoolSteering};
use usher_edge::geo::Places;
use usher_edge::http::{AccessLog, Front, Parts, Plane, Settings};
use usher_edge::resolve::Addresses;
use usher_edge::seal::Keys;
use usher_edge::tls::{Certificates, ClientConfigs, TrustProfile};

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A deadline that a test waits for.
pub(crate) const SHORT: Duration = Duration::from_millis(150);

/// The host that the load balancer answers for.
pub(crate) const HOST: &str = "shop.example.com";

/// One end of a connection.
pub(crate) struct Peer {
    socket: TcpStream,
    read: Vec<u8>,
}

impl Peer {
    pub(crate) fn new(socket: TcpStream) -> Peer {
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        socket.set_write_timeout(Some(PATIENCE)).expect("timeout");
        socket.set_nodelay(true).expect("nodelay");
        Peer {
            socket,
            read: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("send");
    }

    /// As [`Peer::send`], to a peer that may have closed.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.socket.write_all(bytes.as_ref()).is_ok()
    }

    fn fill(&mut self) -> std::io::Result<usize> {
        let mut piece = [0; 64 * 1024];
        let count = self.socket.read(&mut piece)?;
        self.read.extend_from_slice(&piece[..count]);
        Ok(count)
    }

    /// Reads up to and including `end`; what follows stays.
    pub(crate) fn until(&mut self, end: &str) -> String {
        loop {
            let found = self
                .read
                .windows(end.len())
                .position(|window| window == end.as_bytes());
            if let Some(place) = found {
                let rest = self.read.split_off(place + end.len());
                let text = std::mem::replace(&mut self.read, rest);
                return String::from_utf8(text).expect("text");
            }
            let read = String::from_utf8_lossy(&self.read).into_owned();
            match self.fill() {
                Ok(0) => panic!("the connection ended; wanted {end:?} after {read:?}"),
                Ok(_) => {}
                Err(error) => panic!("{error}; wanted {end:?} after {read:?}"),
            }
        }
    }

    /// Reads a head.
    pub(crate) fn head(&mut self) -> String {
        self.until("\r\n\r\n")
    }

    /// Reads exactly `count` bytes.
    pub(crate) fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            let read = self.fill().expect("read");
            assert!(
                read > 0,
                "the connection ended after {} of {count} bytes",
                self.read.len()
            );
        }
        let rest = self.read.split_off(count);
        std::mem::replace(&mut self.read, rest)
    }

    /// As [`Peer::exactly`]; `None` when the connection ends, however it does.
    pub(crate) fn exactly_or_end(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.read.len() < count {
            match self.fill() {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
        Some(self.exactly(count))
    }

    /// Reads a head and the body that it announces.
    pub(crate) fn message(&mut self) -> (String, String) {
        let head = self.head();
        let body = match field(&head, "content-length") {
            Some(length) => {
                String::from_utf8(self.exactly(length.parse().expect("length"))).expect("text")
            }
            None if field(&head, "transfer-encoding").is_some() => self.chunks(),
            None => String::new(),
        };
        (head, body)
    }

    fn chunks(&mut self) -> String {
        let mut body = String::new();
        loop {
            let size = usize::from_str_radix(self.until("\r\n").trim_end(), 16).expect("size");
            if size == 0 {
                // Trailers, if there are any, and the empty line.
                while self.until("\r\n") != "\r\n" {}
                return body;
            }
            body += &String::from_utf8(self.exactly(size)).expect("text");
            assert_eq!(self.exactly(2), b"\r\n");
        }
    }

    /// Reads to the end of the connection: what came, and whether it ended in an orderly way.
    pub(crate) fn rest(&mut self) -> (String, bool) {
        let orderly = loop {
            match self.fill() {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break false,
                Err(error) => panic!("{error}"),
            }
        };
        (
            String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned(),
            orderly,
        )
    }

    /// The other end has closed, and said nothing before that.
    pub(crate) fn ended(&mut self) {
        assert_eq!(self.rest().0, "");
    }

    /// Ends this side only.
    pub(crate) fn shut(&mut self) {
        self.socket.shutdown(Shutdown::Write).expect("shutdown");
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Answers with `status` and a body of known length.
    pub(crate) fn answer(&mut self, status: &str, body: &str) {
        self.send(format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
    }
}

/// The value of a field in a head, by its name in lower case.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

pub(crate) fn status(head: &str) -> u16 {
    let code = head
        .split(' ')
        .nth(1)
        .unwrap_or_else(|| panic!("no status line: {head:?}"));
    code.parse().expect("status")
}

/// An endpoint whose connections each follow a script.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    says: Receiver<String>,
}

impl Origin {
    /// `script` is called with each connection and its number, from 0; it reports with the sender.
    pub(crate) fn new(
        script: impl Fn(&mut Peer, usize, &Sender<String>) + Send + Sync + 'static,
    ) -> Origin {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let address = listener.local_addr().expect("address");
        let (report, says) = channel();
        let script = Arc::new(script);
        thread::spawn(move || {
            for (number, socket) in listener.incoming().enumerate() {
                let (script, report) = (Arc::clone(&script), report.clone());
                let Ok(socket) = socket else { return };
                thread::spawn(move || script(&mut Peer::new(socket), number, &report));
            }
        });
        Origin { address, says }
    }

    /// Answers every request with its own head.
    pub(crate) fn echo() -> Origin {
        Origin::new(|peer, number, report| {
            let _ = report.send(format!("connection {number}"));
            loop {
                let mut first = [0];
                if !matches!(peer.socket.peek(&mut first), Ok(1)) && peer.read.is_empty() {
                    return;
                }
                let (head, body) = peer.message();
                peer.answer("200 OK", &(head + &body));
            }
        })
    }

    /// A port on which nobody listens.
    pub(crate) fn closed() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        listener.local_addr().expect("address")
    }

    /// The next thing that the script reported.
    pub(crate) fn said(&self) -> String {
        self.says
            .recv_timeout(PATIENCE)
            .expect("the endpoint has something to say")
    }

    /// What the script reports within `time`.
    pub(crate) fn heard(&self, time: Duration) -> Option<String> {
        self.says.recv_timeout(time).ok()
    }

    /// Nothing was reported.
    pub(crate) fn is_silent(&self) -> bool {
        self.says.try_recv().is_err()
    }
}

/// What a test wants of its front.
pub(crate) struct Setup {
    pub(crate) endpoints: Vec<SocketAddr>,
    pub(crate) settings: Settings,
    pub(crate) ssl: Ssl,
    pub(crate) tls: EndpointTls,
    pub(crate) host_header: Option<String>,
    pub(crate) always_use_https: bool,
    pub(crate) workers: usize,
    pub(crate) certificates: Certificates,
    pub(crate) access_log: AccessLog,
    pub(crate) places: Option<Arc<Places>>,
    pub(crate) keys: Option<Arc<Keys>>,
    /// What else is different in the draft.
    pub(crate) edit: Box<dyn Fn(&mut Draft)>,
}

impl Setup {
    pub(crate) fn to(endpoints: &[SocketAddr]) -> Setup {
        Setup {
            endpoints: endpoints.to_vec(),
            settings: Settings::default(),
            ssl: Ssl::Flexible,
            tls: EndpointTls::default(),
            host_header: None,
            always_use_https: false,
            workers: 1,
            certificates: Certificates::default(),
            access_log: AccessLog::off(),
            places: None,
            keys: None,
            edit: Box::new(|_| {}),
        }
    }

    pub(crate) fn draft(&self) -> Draft {
        let reference = |kind, name: &str| Reference {
            id: Id::derive("default", kind, name),
            text: name.to_owned(),
        };
        let endpoints = self
            .endpoints
            .iter()
            .enumerate()
            .map(|(place, address)| Endpoint {
                id: Id::derive("default", Kind::Endpoint, &format!("eu {address}")),
                name: format!("e{place}"),
                address: Address::Ip(address.ip()),
                port: Some(address.port()),
                enabled: true,
                // The first gets all traffic as long as it can be reached.
                weight: if place == 0 { 1.0 } else { 0.01 },
                host_header: self.host_header.clone(),
                disabled_at: None,
            });
        let pool = Pool {
            id: Id::derive("default", Kind::Pool, "eu"),
            name: "eu".to_owned(),
            description: String::new(),
            enabled: true,
            endpoints: endpoints.collect(),
            steering: EndpointSteering::Random,
            endpoints_min: 1,
            monitoring: Monitoring::None,
            tls: self.tls.clone(),
            coordinates: None,
            shedding: Shedding::default(),
            slow_start: None,
        };
        let balancer = Balancer {
            id: Id::derive("default", Kind::Balancer, HOST),
            name: HOST.to_owned(),
            host: HostPattern::parse(HOST),
            zone: "example.com".to_owned(),
            description: String::new(),
            enabled: true,
            pools: vec![reference(Kind::Pool, "eu")],
            fallback: reference(Kind::Pool, "eu"),
            steering: PoolSteering::Off,
            weight_default: 1.0,
            weights: Vec::new(),
            areas: Areas::default(),
            location: Default::default(),
            affinity: Affinity::default(),
            failover_across_pools: false,
            endpoint_header: None,
            pool_sets: Vec::new(),
            rules: Default::default(),
        };
        let zone = Zone {
            id: Id::derive("default", Kind::Zone, "example.com"),
            name: "example.com".to_owned(),
            ssl: self.ssl,
            always_use_https: self.always_use_https,
            tls: EndpointTls::default(),
        };
        let mut draft = Draft {
            node: Node {
                name: "test".to_owned(),
                code: "TST".to_owned(),
                region: None,
                country: None,
                city: None,
                coordinates: None,
            },
            zones: vec![zone],
            monitors: Vec::new(),
            monitor_groups: Vec::new(),
            pools: vec![pool],
            balancers: vec![balancer],
            rooms: Vec::new(),
            room_profile: Default::default(),
            interval_min: Duration::from_secs(10),
            hash_key: Default::default(),
        };
        (self.edit)(&mut draft);
        draft
    }

    /// What such a front decides with.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        let catalog = Catalog::check(self.draft()).expect("a catalog without faults");
        Arc::new(Snapshot::presumed(Arc::new(catalog)))
    }

    pub(crate) fn start(self) -> Usher {
        let trust = self.tls.ca.as_deref().map(Into::into);
        let profiles = [
            TrustProfile::default(),
            TrustProfile {
                verify: true,
                ca: trust.clone(),
                ..TrustProfile::default()
            },
            TrustProfile {
                ca: trust,
                ..TrustProfile::default()
            },
        ];
        let clients = ClientConfigs::load(profiles).expect("trust");
        let plane = Plane::new(Parts {
            snapshot: self.snapshot(),
            settings: self.settings,
            certificates: self.certificates,
            clients,
            access_log: self.access_log,
            places: self.places,
            keys: self.keys,
            addresses: Arc::new(Addresses::default()),
            workers: self.workers,
        });
        let front = Front::start(&plane).expect("front");
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let address = front.listen(any, Scheme::Http).expect("listen").address;
        Usher {
            front,
            address,
            plane,
        }
    }
}

/// A front under test.
pub(crate) struct Usher {
    pub(crate) front: Front,
    pub(crate) address: SocketAddr,
    pub(crate) plane: Arc<Plane>,
}

impl Usher {
    pub(crate) fn to(origin: &Origin) -> Usher {
        Setup::to(&[origin.address]).start()
    }

    pub(crate) fn client(&self) -> Peer {
        Peer::new(TcpStream::connect(self.address).expect("connect"))
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, request: &str) -> (String, String) {
        let mut client = self.client();
        client.send(request);
        client.message()
    }
}

/// A GET for `path`.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")
}

/// A request with `method` and `body`.
pub(crate) fn with_body(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
