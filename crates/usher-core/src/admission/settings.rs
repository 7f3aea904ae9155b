//! What an operator sets, as the room uses it: one unit, no optional values.

/// Settings of a room at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Most seats held or reserved at once. 0: nobody new enters.
    pub total: u64,
    /// Most admissions in any 60 s. 0: nobody new enters.
    pub per_minute: u64,
    /// Life of a seat without a renewal, ms. Range 1,000..=86,400,000, default 300,000.
    pub session_ms: u64,
    /// How a seat is renewed.
    pub renewal: Renewal,
    /// Who enters next. Default [`Method::Fifo`].
    pub method: Method,
    /// Nobody without a seat enters, whatever the method.
    pub queue_all: bool,
    /// The room is off.
    pub suspended: bool,
    /// How often a waiting page asks, ms. Default 20,000.
    pub refresh_ms: u64,
    /// Silence after which no seat is reserved for a waiting visitor, ms. Default twice the refresh
    /// and 5 s.
    pub present_ms: u64,
    /// Silence after which a ticket is void, ms. Default 300,000.
    pub hold_ms: u64,
    /// How long a seat is reserved, ms. Default as `present_ms`.
    pub claim_ms: u64,
    /// Most waiting visitors; 0: any number.
    pub queue_len_max: u64,
    /// How fast a freed minute is spent.
    pub pacing: Pacing,
    /// What an old copy of a cookie leads to.
    pub copies: Copies,
    /// A request for a part of a page, without a cookie, is a visitor like any other.
    pub subrequests_strict: bool,
}

/// How a seat is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// By each request that comes at least so long after the last renewal, ms. 0: by each request.
    /// Default the lesser of 10 s and a tenth of the session.
    After {
        /// The quantum.
        quantum_ms: u64,
    },
    /// Never: a seat ends a session's length after the admission.
    Never,
}

/// Who enters next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// The lowest ticket.
    Fifo,
    /// One of those present, drawn anew each time.
    Random,
    /// Everybody at once; counted, not limited.
    Passthrough,
    /// Nobody; and nobody waits.
    Reject,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 4] = [
        Method::Fifo,
        Method::Random,
        Method::Passthrough,
        Method::Reject,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Fifo => "fifo",
            Method::Random => "random",
            Method::Passthrough => "passthrough",
            Method::Reject => "reject",
        }
    }
}

/// How fast a freed minute is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pacing {
    /// As fast as the limits allow.
    Burst,
    /// At most a sixtieth of the minute's limit, and one, in each second: of the visitors who are
    /// called or enter at once. A called visitor then enters whenever it comes.
    Smooth,
}

/// What an old copy of a cookie leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Copies {
    /// It is counted.
    Log,
    /// Its bearer is somebody new.
    Fork,
}

/// A store keeps a seat for so much longer than its holder is told: clocks differ.
pub(super) const CLOCK_ERROR_MS: u64 = 1000;

impl Settings {
    /// The defaults of a room with these limits.
    #[must_use]
    pub const fn new(total: u64, per_minute: u64) -> Settings {
        Settings {
            total,
            per_minute,
            session_ms: 300_000,
            renewal: Renewal::After { quantum_ms: 10_000 },
            method: Method::Fifo,
            queue_all: false,
            suspended: false,
            refresh_ms: 20_000,
            present_ms: 45_000,
            hold_ms: 300_000,
            claim_ms: 45_000,
            queue_len_max: 0,
            pacing: Pacing::Burst,
            copies: Copies::Log,
            subrequests_strict: false,
        }
    }

    /// The same with another session, and the default quantum of that session.
    #[must_use]
    pub const fn session(mut self, session_ms: u64) -> Settings {
        let tenth = session_ms / 10;
        self.session_ms = session_ms;
        self.renewal = Renewal::After {
            quantum_ms: if tenth < 10_000 { tenth } else { 10_000 },
        };
        self
    }

    /// The same with another refresh, and the defaults that follow from it.
    #[must_use]
    pub const fn refresh(mut self, refresh_ms: u64) -> Settings {
        self.refresh_ms = refresh_ms;
        self.present_ms = 2 * refresh_ms + 5_000;
        self.claim_ms = self.present_ms;
        self
    }

    /// A seat renewed at some moment is over for its holder so much later.
    #[must_use]
    pub const fn lease_ms(&self) -> u64 {
        match self.renewal {
            Renewal::After { quantum_ms } => self.session_ms.saturating_add(quantum_ms),
            Renewal::Never => self.session_ms,
        }
    }

    /// And so much later the room gives it away.
    pub(super) const fn keep_ms(&self) -> u64 {
        self.lease_ms().saturating_add(CLOCK_ERROR_MS)
    }

    /// How far ahead a journal allows for admissions before they happen: a crash costs so many
    /// seats at most, a hundredth of all.
    #[must_use]
    pub fn watermark_step(&self) -> u64 {
        (self.total / 100).clamp(1, 1024)
    }
}
