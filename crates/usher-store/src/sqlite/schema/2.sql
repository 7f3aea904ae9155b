-- No table changes: waiting rooms and their rules are kinds that an older build does not know.
PRAGMA user_version = 2;
