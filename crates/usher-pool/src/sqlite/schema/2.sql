-- What a browser is lent for: 0 a session, 1 a quick action, 2 a page of a crawl. Only sessions are
-- shown and count for their account; the others are rows because they hold browsers, and are
-- forgotten with their wish.
ALTER TABLE session ADD COLUMN class INTEGER NOT NULL DEFAULT 0 CHECK (class BETWEEN 0 AND 2);

-- Quick actions come by the hundred thousand a day: a history that had to step over them would be
-- slow for whoever has many.
DROP INDEX session_account;
CREATE INDEX session_history ON session (account, number) WHERE class = 0;

PRAGMA user_version = 2;
