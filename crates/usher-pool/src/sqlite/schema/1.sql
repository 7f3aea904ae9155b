-- One row. `reaped` is when everything was last looked over.
CREATE TABLE meta (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    reaped INTEGER
) STRICT;

INSERT INTO meta (one) VALUES (1);

-- `launches` counts the browsers that it ever had; the next one's key is made of it.
CREATE TABLE node (
    id          INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 2147483647),
    name        TEXT NOT NULL UNIQUE,
    boot        INTEGER NOT NULL,
    slots       INTEGER NOT NULL,
    heard       INTEGER NOT NULL,
    distance_us INTEGER NOT NULL,
    draining    INTEGER NOT NULL,
    quarantined INTEGER NOT NULL,
    lost        INTEGER NOT NULL,
    launches    INTEGER NOT NULL
) STRICT;

-- The nodes that give browsers, in the order in which they are asked.
CREATE INDEX node_gives ON node (distance_us, id)
    WHERE lost = 0 AND draining = 0 AND quarantined = 0;

-- As narrow as it can be, because each row is written every five seconds. The key is the node's
-- number in the upper half and a count in the lower, so that the browsers of a node lie together
-- and a batch of a node's heartbeats touches few pages. `commanded` is of a live session.
CREATE TABLE browser (
    key       INTEGER PRIMARY KEY,
    phase     INTEGER NOT NULL CHECK (phase BETWEEN 0 AND 5),
    stock     INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    mem_kib   INTEGER NOT NULL,
    commanded INTEGER NOT NULL,
    since     INTEGER NOT NULL
) STRICT;

CREATE INDEX browser_ready ON browser (stock, key) WHERE phase = 1;
CREATE INDEX browser_live ON browser (key) WHERE phase < 5;
CREATE INDEX browser_watch ON browser (phase, since, key) WHERE phase IN (0, 2, 4, 5);

-- What never changes of a browser.
CREATE TABLE browser_birth (
    key     INTEGER PRIMARY KEY,
    id      BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    started INTEGER NOT NULL
) STRICT;

-- A browser has one session in its whole life: keys are never used again, and `browser` is unique.
-- `request` is forgotten an hour after the end, the rest is the history.
CREATE TABLE session (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    id           BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    account      BLOB NOT NULL CHECK (length(account) = 16),
    browser      INTEGER NOT NULL UNIQUE,
    browser_id   BLOB NOT NULL CHECK (length(browser_id) = 16),
    epoch        INTEGER NOT NULL,
    request      BLOB CHECK (length(request) = 16),
    attempt      INTEGER NOT NULL,
    keep_alive   INTEGER NOT NULL,
    started      INTEGER NOT NULL,
    commanded    INTEGER NOT NULL,
    connection   BLOB CHECK (length(connection) = 16),
    connected    INTEGER,
    disconnected INTEGER,
    ended        INTEGER,
    reason       INTEGER,
    UNIQUE (request, attempt)
) STRICT;

CREATE INDEX session_live ON session (account, number) WHERE ended IS NULL;
CREATE INDEX session_account ON session (account, number);
CREATE INDEX session_ended ON session (ended) WHERE ended IS NOT NULL;
CREATE INDEX session_wish ON session (ended) WHERE ended IS NOT NULL AND request IS NOT NULL;

-- `minute` holds the moments of the last new sessions, eight bytes each.
CREATE TABLE account (
    id             BLOB PRIMARY KEY CHECK (length(id) = 16),
    browsers       INTEGER NOT NULL,
    browsers_at    INTEGER NOT NULL,
    minute         BLOB NOT NULL,
    quick_actions  INTEGER NOT NULL,
    quick_actions_at INTEGER NOT NULL,
    day            INTEGER NOT NULL,
    used_ms        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Claims of sessions that do not live here: not yet, or elsewhere.
CREATE TABLE slot (
    account BLOB NOT NULL CHECK (length(account) = 16),
    session BLOB NOT NULL CHECK (length(session) = 16),
    until   INTEGER NOT NULL,
    PRIMARY KEY (account, session)
) STRICT, WITHOUT ROWID;

PRAGMA application_id = 0x75736270;
PRAGMA user_version = 1;
