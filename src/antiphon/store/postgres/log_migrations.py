"""The migration that partitions the log of running responses (see `log_partitions`).

Gateways of the version before keep running beside it: the names and columns that they use stay.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LOG_PARTITIONS", "PARTITION_BITS", "PARTITION_SETTINGS"]

# Keys of one partition: far more than the responses of an hour, and far fewer than there are.
PARTITION_BITS: Final = 32
# The rows are never updated and rarely deleted: vacuum has work only after deletions.
PARTITION_SETTINGS: Final = (
    "WITH (autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_scale_factor = 0.02)"
)

LOG_PARTITIONS: Final[tuple[str, ...]] = (
    "ALTER TABLE log RENAME TO log_until_partitions",
    "ALTER INDEX log_pkey RENAME TO log_until_partitions_pkey",
    "ALTER TABLE log_until_partitions ALTER COLUMN key DROP IDENTITY",
    "CREATE SEQUENCE log_key_seq",
    """CREATE TABLE log (
        key BIGINT NOT NULL DEFAULT nextval('log_key_seq'),
        response BIGINT NOT NULL,
        first BIGINT NOT NULL,
        last BIGINT NOT NULL,
        owner TEXT COLLATE "C" NOT NULL,
        body BYTEA NOT NULL,
        PRIMARY KEY (response, first)
    ) PARTITION BY RANGE (response)""",
    "ALTER SEQUENCE log_key_seq OWNED BY log.key",
    "SELECT setval('log_key_seq', coalesce(max(key), 0) + 1, FALSE) FROM log_until_partitions",
    # A gateway of the version before may be storing turns now: their keys are below the bound.
    f"""DO $$
    DECLARE sequence TEXT := pg_get_serial_sequence('responses', 'key');
        bound BIGINT;
        width BIGINT := 1::bigint << {PARTITION_BITS};
    BEGIN
        EXECUTE format('SELECT greatest(last_value, (SELECT max(key) FROM responses)) FROM %s',
            sequence) INTO bound;
        bound := (bound / width + 1) * width;
        EXECUTE format('ALTER TABLE log ATTACH PARTITION log_until_partitions
            FOR VALUES FROM (MINVALUE) TO (%s)', bound);
        EXECUTE format('CREATE TABLE log_from_%s PARTITION OF log
            FOR VALUES FROM (%s) TO (%s) {PARTITION_SETTINGS}', bound, bound, bound + width);
        PERFORM setval(sequence, bound, FALSE);
    END $$""",  # noqa: S608 # constants
    # One count for each of several rows, so that removals of many gateways do not wait for each
    # other's commits. Older gateways read the sum under the old name.
    "ALTER TABLE removals RENAME TO removal_counts",
    "ALTER TABLE removal_counts ADD COLUMN part INTEGER NOT NULL DEFAULT 0",
    "INSERT INTO removal_counts (count, part) SELECT 0, part FROM generate_series(1, 31) AS part",
    "ALTER TABLE removal_counts ADD PRIMARY KEY (part)",
    "CREATE VIEW removals AS SELECT sum(count)::bigint AS count FROM removal_counts",
    """CREATE OR REPLACE FUNCTION antiphon_count_removal() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('UPDATE %I.removal_counts SET count = count + 1 WHERE part = $1',
            TG_TABLE_SCHEMA) USING pg_backend_pid() % 32;
        RETURN NULL;
    END $$""",
    # Rows that are updated soon after they were written find room on their page.
    "ALTER TABLE responses SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05)",
    "ALTER TABLE jobs SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02)",
    "ALTER TABLE nodes SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02)",
    "ALTER TABLE removal_counts SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02)",
    "ALTER TABLE budgets SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02)",
    "ALTER TABLE rate_limits SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02)",
)
