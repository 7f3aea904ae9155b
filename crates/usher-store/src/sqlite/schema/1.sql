-- One row. `revision` is the newest change; of deletes up to `forgotten` some are no longer in
-- `tombstones`.
CREATE TABLE meta (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    revision  INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
) STRICT;

INSERT INTO meta (one, revision, forgotten) VALUES (1, 0, 0);

-- `created` and `position`: the change that created it and its place in that, the order of lists.
-- `digest` and `expires` are of tokens, `secret` is of destinations; none of them is ever shown.
CREATE TABLE resources (
    kind        TEXT NOT NULL,
    id          BLOB NOT NULL CHECK (length(id) = 16),
    scope       TEXT NOT NULL,
    name        TEXT NOT NULL,
    document    TEXT NOT NULL,
    digest      BLOB CHECK (length(digest) = 32),
    expires     INTEGER,
    secret      TEXT,
    created_on  INTEGER NOT NULL,
    modified_on INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    revision    INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT;

CREATE TABLE tombstones (
    kind     TEXT NOT NULL,
    id       BLOB NOT NULL CHECK (length(id) = 16),
    scope    TEXT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT;

CREATE INDEX tombstones_revision ON tombstones (revision);

CREATE TABLE audit (
    revision INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    token    BLOB CHECK (length(token) = 16),
    actor    TEXT NOT NULL,
    what     TEXT NOT NULL
) STRICT;

CREATE INDEX audit_at ON audit (at);

-- `before` is null where the change created it, `after` where the change deleted it.
CREATE TABLE audit_items (
    revision INTEGER NOT NULL REFERENCES audit (revision) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    id       BLOB NOT NULL CHECK (length(id) = 16),
    scope    TEXT NOT NULL,
    name     TEXT NOT NULL,
    before   TEXT,
    after    TEXT,
    PRIMARY KEY (revision, position)
) STRICT;

CREATE INDEX audit_items_resource ON audit_items (kind, id, revision);

-- What a request was told, for when it is sent again.
CREATE TABLE repeats (
    key      BLOB PRIMARY KEY CHECK (length(key) = 32),
    at       INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    answer   TEXT NOT NULL
) STRICT;

CREATE INDEX repeats_at ON repeats (at);

-- AUTOINCREMENT: the id of an event that is gone never comes again. The documents stand apart, so
-- that looking for events does not read what they say.
CREATE TABLE events (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    at           INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    account      BLOB NOT NULL CHECK (length(account) = 16),
    subject      BLOB NOT NULL CHECK (length(subject) = 16),
    subject_name TEXT NOT NULL,
    healthy      INTEGER
) STRICT;

CREATE INDEX events_at ON events (at);

CREATE TABLE event_documents (
    event    INTEGER PRIMARY KEY REFERENCES events (id) ON DELETE CASCADE,
    document TEXT NOT NULL
) STRICT;

CREATE TABLE event_parts (
    event    INTEGER NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    name     TEXT NOT NULL,
    healthy  INTEGER,
    PRIMARY KEY (event, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE token_uses (
    token BLOB PRIMARY KEY CHECK (length(token) = 16),
    at    INTEGER NOT NULL
) STRICT;

CREATE TABLE secrets (
    name   TEXT PRIMARY KEY,
    secret TEXT NOT NULL
) STRICT;

PRAGMA application_id = 0x75736872;
PRAGMA user_version = 1;
