//! Where addresses are: databases in MaxMind's format, held in memory.
//!
//! The operator brings the file; GeoLite2, GeoIP2, DB-IP and the flat tables of ip-location-db are
//! understood. It is read into memory and not mapped, because a mapped file that somebody shortens
//! kills the process. What was read never changes: a newer file is a new value, swapped in whole.
//!
//! A file is somebody else's bytes. Loading looks into all corners of it and refuses one that is
//! damaged or holds something else; damage that it did not meet makes single addresses unknown
//! later, and nothing worse.

mod record;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;
use maxminddb::{MaxMindDbError, Reader};
use usher_core::region::Place;
use usher_core::time::Wall;

use crate::file::{self, FileFault};
use record::Record;

/// The largest databases that are sold have a third of this.
const DATABASE_BYTES_MAX: u64 = 1 << 30;

/// Countries and, if the file has them, subdivisions and coordinates.
#[derive(Debug)]
pub struct Places(Database);

impl Places {
    /// Loads the file at `path`. Takes as long as reading it does, and a few milliseconds.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or knows no countries.
    pub fn load(path: &Path) -> Result<Places, FileFault> {
        let whole = file::read(path, DATABASE_BYTES_MAX)?;
        let places = Places::parse(whole.bytes).map_err(|what| FileFault::new(path, what))?;
        Ok(places)
    }

    /// The same from bytes; the error says what is wrong with them.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Places, String> {
        let database = Database::parse(bytes)?;
        database.check("countries", |record| record.place().is_some())?;
        Ok(Places(database))
    }

    /// Where `address` is, if the file knows. Does not allocate.
    #[must_use]
    pub fn place(&self, address: IpAddr) -> Option<Place> {
        self.0.record(address).ok()??.place()
    }

    /// Which database it is.
    #[must_use]
    pub fn edition(&self) -> Edition<'_> {
        self.0.edition()
    }
}

/// Numbers of autonomous systems.
#[derive(Debug)]
pub struct Networks(Database);

impl Networks {
    /// Loads the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or knows no autonomous systems.
    pub fn load(path: &Path) -> Result<Networks, FileFault> {
        let whole = file::read(path, DATABASE_BYTES_MAX)?;
        let networks = Networks::parse(whole.bytes).map_err(|what| FileFault::new(path, what))?;
        Ok(networks)
    }

    fn parse(bytes: Vec<u8>) -> Result<Networks, String> {
        let database = Database::parse(bytes)?;
        database.check("autonomous systems", |record| record.system().is_some())?;
        Ok(Networks(database))
    }

    /// The number of the autonomous system that announces `address`, if the file knows. Does not
    /// allocate.
    #[must_use]
    pub fn system(&self, address: IpAddr) -> Option<u32> {
        self.0.record(address).ok()??.system()
    }

    /// Which database it is.
    #[must_use]
    pub fn edition(&self) -> Edition<'_> {
        self.0.edition()
    }
}

/// What a database says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edition<'a> {
    /// Its type, such as `GeoLite2-Country`.
    pub kind: &'a str,
    /// When its maker built it.
    pub built: Wall,
}

impl fmt::Display for Edition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The last second that the format of dates can say.
        const LAST: u64 = 253_402_300_799;
        let millis = u64::try_from(self.built.as_millis()).unwrap_or(0);
        let built = Duration::from_secs((millis / 1000).min(LAST));
        let built = HttpDate::from(UNIX_EPOCH + built);
        write!(f, "{:?}, built {built}", self.kind)
    }
}

struct Database(Reader<Vec<u8>>);

impl Database {
    fn parse(bytes: Vec<u8>) -> Result<Database, String> {
        Reader::from_source(bytes)
            .map(Database)
            .map_err(|error| match error {
                MaxMindDbError::InvalidDatabase {
                    message,
                    offset: None,
                } => {
                    format!("is no complete MMDB database: {message}")
                }
                error => damaged(&error),
            })
    }

    /// The record of the network that holds `address`.
    fn record(&self, address: IpAddr) -> Result<Option<Record<'_>>, MaxMindDbError> {
        // A visitor that came over a dual-stack socket is known by its IPv4 address.
        let address = address.to_canonical();
        if address.is_ipv6() && self.0.metadata().ip_version == 4 {
            return Ok(None);
        }
        self.0.lookup(address)?.decode()
    }

    fn edition(&self) -> Edition<'_> {
        let metadata = self.0.metadata();
        let seconds = i64::try_from(metadata.build_epoch).unwrap_or(i64::MAX);
        Edition {
            kind: &metadata.database_type,
            built: Wall::from_millis(seconds.saturating_mul(1000)),
        }
    }

    /// Reads records everywhere in the file: none may be damaged, one must be of use.
    fn check(&self, what: &str, is_of_use: impl Fn(&Record<'_>) -> bool) -> Result<(), String> {
        let mut found = false;
        for address in self.samples() {
            let record = self.record(address).map_err(|error| damaged(&error))?;
            found |= record.is_some_and(|record| is_of_use(&record));
        }
        if found {
            return Ok(());
        }
        Err(format!(
            "holds no {what}; its type is {:?}",
            self.edition().kind
        ))
    }

    /// Addresses spread evenly over both families, and one in each of the first networks: the
    /// former meet a large file everywhere, the latter all of a small one. A walk over all networks
    /// would take seconds on a large file, and for ever on one whose tree runs in a circle.
    fn samples(&self) -> impl Iterator<Item = IpAddr> {
        const SPREAD: u32 = 512;
        let v4 = (0..SPREAD).map(|step| IpAddr::V4(Ipv4Addr::from_bits(step << (32 - 9))));
        // All addresses that are given out lie in 2000::/3.
        let global = u128::from(0x2000_u16) << 112;
        let v6 = (0..SPREAD).map(move |step| {
            IpAddr::V6(Ipv6Addr::from_bits(global | u128::from(step) << (125 - 9)))
        });
        let first = [
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv6Addr::from_bits(global).into(),
        ];
        v4.chain(v6)
            .chain(first.into_iter().flat_map(|from| self.neighbours(from)))
    }

    /// `from`, the first address of the next network, and so on.
    fn neighbours(&self, from: IpAddr) -> impl Iterator<Item = IpAddr> {
        const NEIGHBOURS_MAX: usize = 512;
        let next = |&address: &IpAddr| {
            let last = self.0.lookup(address).ok()?.network().ok()?.broadcast();
            match last {
                IpAddr::V4(last) => last
                    .to_bits()
                    .checked_add(1)
                    .map(|bits| Ipv4Addr::from(bits).into()),
                IpAddr::V6(last) => last
                    .to_bits()
                    .checked_add(1)
                    .map(|bits| Ipv6Addr::from(bits).into()),
            }
        };
        std::iter::successors(Some(from), next).take(NEIGHBOURS_MAX)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.edition().fmt(f)
    }
}

fn damaged(error: &MaxMindDbError) -> String {
    format!("is damaged: {error}")
}
