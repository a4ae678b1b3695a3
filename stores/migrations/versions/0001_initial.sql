-- The schema of the first release: every table with its constraints, then its indexes.

CREATE TABLE addr_audit (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    done_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    log_id BIGINT,
    address_id BIGINT,
    reason TEXT,
    CONSTRAINT pk_addr_audit PRIMARY KEY (id)
);
CREATE INDEX ix_addr_audit_address_id ON addr_audit (address_id) WHERE address_id IS NOT NULL;
CREATE INDEX ix_addr_audit_log_id ON addr_audit (log_id) WHERE log_id IS NOT NULL;

CREATE TABLE addr_logical_deletes (
    address_id BIGINT NOT NULL,
    od_flag CHAR(1) NOT NULL,
    wfm_flag CHAR(1) NOT NULL,
    ed_flag CHAR(1) NOT NULL,
    create_date TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    uprn BIGINT NOT NULL,
    log_id BIGINT NOT NULL,
    checked_at TIMESTAMP WITH TIME ZONE,
    removable_at TIMESTAMP WITH TIME ZONE,
    purged_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_addr_logical_deletes PRIMARY KEY (address_id),
    CONSTRAINT ck_addr_logical_deletes_od_flag CHECK (od_flag IN ('Y', 'N')),
    CONSTRAINT ck_addr_logical_deletes_wfm_flag CHECK (wfm_flag IN ('Y', 'N')),
    CONSTRAINT ck_addr_logical_deletes_ed_flag CHECK (ed_flag IN ('Y', 'N'))
);
CREATE INDEX ix_addr_logical_deletes_listed ON addr_logical_deletes (create_date, address_id) WHERE purged_at IS NULL;
CREATE INDEX ix_addr_logical_deletes_uprn ON addr_logical_deletes (uprn);

CREATE TABLE addr_settings (
    version BIGINT GENERATED ALWAYS AS IDENTITY,
    options JSONB NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    who TEXT NOT NULL,
    reason TEXT NOT NULL,
    CONSTRAINT pk_addr_settings PRIMARY KEY (version)
);

CREATE TABLE addr_sync_keys (
    topic VARCHAR(50) NOT NULL,
    msg_no VARCHAR(32) NOT NULL,
    event_id TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_addr_sync_keys PRIMARY KEY (topic, msg_no)
);
CREATE INDEX ix_addr_sync_keys_created_at ON addr_sync_keys USING brin (created_at);
CREATE UNIQUE INDEX uq_addr_sync_keys_event ON addr_sync_keys (topic, event_id) WHERE event_id IS NOT NULL;

CREATE TABLE addr_sync_quarantine (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    topic TEXT NOT NULL,
    msg_no TEXT NOT NULL,
    raw BYTEA NOT NULL,
    raw_bytes BIGINT NOT NULL,
    reason TEXT NOT NULL,
    published_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    mended_at TIMESTAMP WITH TIME ZONE,
    mended_by TEXT,
    mended_as BIGINT,
    CONSTRAINT pk_addr_sync_quarantine PRIMARY KEY (id)
);
CREATE INDEX ix_addr_sync_quarantine_created_at ON addr_sync_quarantine (created_at, id);
CREATE INDEX ix_addr_sync_quarantine_unmended ON addr_sync_quarantine (created_at, id) WHERE mended_as IS NULL;
CREATE UNIQUE INDEX uq_addr_sync_quarantine_topic_msg_no ON addr_sync_quarantine (topic, msg_no);

CREATE TABLE downloads (
    task_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    operator_id TEXT,
    source_hosts TEXT[] DEFAULT '{}' NOT NULL,
    file_name TEXT NOT NULL,
    type TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    processings INTEGER NOT NULL,
    total_rows BIGINT,
    rows BIGINT,
    bytes BIGINT,
    sha256 TEXT,
    etag TEXT,
    file JSONB,
    fault JSONB,
    expires_at TIMESTAMP WITH TIME ZONE,
    fetchers INTEGER,
    request JSONB NOT NULL,
    CONSTRAINT pk_downloads PRIMARY KEY (task_id),
    CONSTRAINT ck_downloads_state CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'cancelled', 'expired'))
);
CREATE INDEX ix_downloads_created_at ON downloads (created_at DESC);
CREATE INDEX ix_downloads_expires_at ON downloads (expires_at) WHERE state = 'succeeded';
CREATE INDEX ix_downloads_failed ON downloads (finished_at) WHERE state = 'failed';
CREATE INDEX ix_downloads_project_id_cause_created_at ON downloads (project_id, (fault ->> 'code'), created_at DESC) WHERE fault IS NOT NULL;
CREATE INDEX ix_downloads_project_id_created_at ON downloads (project_id, created_at DESC);
CREATE INDEX ix_downloads_project_id_operator_id_created_at ON downloads (project_id, operator_id, created_at DESC);
CREATE INDEX ix_downloads_project_id_state_created_at ON downloads (project_id, state, created_at DESC);
CREATE INDEX ix_downloads_unfinished ON downloads (project_id, state) WHERE state IN ('pending', 'running');

CREATE TABLE idempotency_keys (
    project_id TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint BYTEA NOT NULL,
    task_id TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (project_id, key)
);
CREATE INDEX ix_idempotency_keys_created_at ON idempotency_keys (created_at);

CREATE TABLE im_infi_addr_sync_log (
    topic VARCHAR(50) NOT NULL,
    uprn_1 BIGINT NOT NULL,
    uprn_2 BIGINT,
    msg_no VARCHAR(32) NOT NULL,
    payload JSON,
    proc_flag CHAR(1),
    proc_update_date TIMESTAMP WITH TIME ZONE,
    retry_times SMALLINT DEFAULT 0 NOT NULL,
    ed_ack CHAR(1),
    im_ack CHAR(1),
    wfm_ack CHAR(1),
    od_ack CHAR(1),
    ed_stack_trace TEXT,
    im_stack_trace TEXT,
    wfm_stack_trace TEXT,
    od_stack_trace TEXT,
    createdat TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    ed_ack_date TIMESTAMP WITH TIME ZONE,
    im_ack_date TIMESTAMP WITH TIME ZONE,
    wfm_ack_date TIMESTAMP WITH TIME ZONE,
    od_ack_date TIMESTAMP WITH TIME ZONE,
    address_id BIGINT,
    cycle_id TEXT,
    superseded_by BIGINT,
    next_attempt_at TIMESTAMP WITH TIME ZONE,
    wait_reason JSONB,
    reason TEXT,
    published_at TIMESTAMP WITH TIME ZONE,
    event_id TEXT,
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    CONSTRAINT pk_im_infi_addr_sync_log PRIMARY KEY (id),
    CONSTRAINT ck_im_infi_addr_sync_log_ed_ack CHECK (ed_ack IN ('Y', 'N')),
    CONSTRAINT ck_im_infi_addr_sync_log_im_ack CHECK (im_ack IN ('Y', 'N')),
    CONSTRAINT ck_im_infi_addr_sync_log_wfm_ack CHECK (wfm_ack IN ('Y', 'N')),
    CONSTRAINT ck_im_infi_addr_sync_log_od_ack CHECK (od_ack IN ('Y', 'N')),
    CONSTRAINT ck_im_infi_addr_sync_log_proc_flag CHECK (proc_flag IN ('P', 'Y', 'N'))
);
CREATE INDEX ix_im_infi_addr_sync_log_begun ON im_infi_addr_sync_log (proc_flag, id) WHERE proc_flag IS NOT NULL;
CREATE INDEX ix_im_infi_addr_sync_log_createdat ON im_infi_addr_sync_log (createdat, id);
CREATE INDEX ix_im_infi_addr_sync_log_creates ON im_infi_addr_sync_log (id) WHERE topic = 'createUpdateInfinityAddress' AND (proc_flag IS NULL OR proc_flag <> 'Y');
CREATE INDEX ix_im_infi_addr_sync_log_deletes ON im_infi_addr_sync_log (id) WHERE topic = 'deleteInfinityAddress' AND (proc_flag IS NULL OR proc_flag <> 'Y');
CREATE INDEX ix_im_infi_addr_sync_log_swaps ON im_infi_addr_sync_log (id) WHERE topic = 'swapDeleteInfinityAddress' AND (proc_flag IS NULL OR proc_flag <> 'Y');
CREATE INDEX ix_im_infi_addr_sync_log_uprn_1 ON im_infi_addr_sync_log (uprn_1, id);
CREATE INDEX ix_im_infi_addr_sync_log_uprn_2 ON im_infi_addr_sync_log (uprn_2, id) WHERE uprn_2 IS NOT NULL;

CREATE TABLE im_infi_addr_sync_log_his (
    topic VARCHAR(50) NOT NULL,
    uprn_1 BIGINT NOT NULL,
    uprn_2 BIGINT,
    msg_no VARCHAR(32) NOT NULL,
    payload JSON,
    proc_flag CHAR(1),
    proc_update_date TIMESTAMP WITH TIME ZONE,
    retry_times SMALLINT DEFAULT 0 NOT NULL,
    ed_ack CHAR(1),
    im_ack CHAR(1),
    wfm_ack CHAR(1),
    od_ack CHAR(1),
    ed_stack_trace TEXT,
    im_stack_trace TEXT,
    wfm_stack_trace TEXT,
    od_stack_trace TEXT,
    createdat TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    ed_ack_date TIMESTAMP WITH TIME ZONE,
    im_ack_date TIMESTAMP WITH TIME ZONE,
    wfm_ack_date TIMESTAMP WITH TIME ZONE,
    od_ack_date TIMESTAMP WITH TIME ZONE,
    address_id BIGINT,
    cycle_id TEXT,
    superseded_by BIGINT,
    next_attempt_at TIMESTAMP WITH TIME ZONE,
    wait_reason JSONB,
    reason TEXT,
    published_at TIMESTAMP WITH TIME ZONE,
    event_id TEXT,
    id BIGINT NOT NULL,
    archived_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_im_infi_addr_sync_log_his PRIMARY KEY (id),
    CONSTRAINT ck_im_infi_addr_sync_log_his_ed_ack CHECK (ed_ack IN ('Y', 'N')),
    CONSTRAINT ck_im_infi_addr_sync_log_his_im_ack CHECK (im_ack IN ('Y', 'N')),
    CONSTRAINT ck_im_infi_addr_sync_log_his_wfm_ack CHECK (wfm_ack IN ('Y', 'N')),
    CONSTRAINT ck_im_infi_addr_sync_log_his_od_ack CHECK (od_ack IN ('Y', 'N')),
    CONSTRAINT ck_im_infi_addr_sync_log_his_proc_flag CHECK (proc_flag IN ('P', 'Y', 'N'))
);
CREATE INDEX ix_im_infi_addr_sync_log_his_archived_at ON im_infi_addr_sync_log_his (archived_at);
CREATE INDEX ix_im_infi_addr_sync_log_his_createdat ON im_infi_addr_sync_log_his (createdat, id);
CREATE INDEX ix_im_infi_addr_sync_log_his_uprn_1 ON im_infi_addr_sync_log_his (uprn_1, id);
CREATE INDEX ix_im_infi_addr_sync_log_his_uprn_2 ON im_infi_addr_sync_log_his (uprn_2, id) WHERE uprn_2 IS NOT NULL;

CREATE TABLE limit_leases (
    key TEXT NOT NULL,
    holder TEXT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_limit_leases PRIMARY KEY (key, holder)
);
CREATE INDEX ix_limit_leases_expires_at ON limit_leases (expires_at);

CREATE TABLE limit_shares (
    key TEXT NOT NULL,
    holder TEXT NOT NULL,
    permits INTEGER NOT NULL,
    demand INTEGER NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_limit_shares PRIMARY KEY (key, holder)
);
CREATE INDEX ix_limit_shares_expires_at ON limit_shares (expires_at);

CREATE TABLE limit_spending (
    bucket TEXT NOT NULL,
    returns_at TIMESTAMP WITH TIME ZONE NOT NULL,
    amount BIGINT NOT NULL,
    CONSTRAINT pk_limit_spending PRIMARY KEY (bucket, returns_at)
);
CREATE INDEX ix_limit_spending_returns_at ON limit_spending (returns_at);

CREATE TABLE order_copies (
    platform TEXT NOT NULL,
    shop TEXT NOT NULL,
    order_id TEXT NOT NULL,
    revision BIGINT NOT NULL,
    until_revision BIGINT NOT NULL,
    modified_at TIMESTAMP WITH TIME ZONE NOT NULL,
    version BIGINT NOT NULL,
    raw TEXT NOT NULL,
    replaced_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_order_copies PRIMARY KEY (platform, shop, order_id, revision)
);
CREATE INDEX ix_order_copies_replaced_at ON order_copies (replaced_at);

CREATE TABLE order_settings (
    version BIGINT GENERATED ALWAYS AS IDENTITY,
    platform TEXT NOT NULL,
    options JSONB NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_order_settings PRIMARY KEY (version)
);
CREATE INDEX ix_order_settings_platform_version ON order_settings (platform, version DESC);

CREATE TABLE orders (
    platform TEXT NOT NULL,
    shop TEXT NOT NULL,
    order_id TEXT NOT NULL,
    modified_at TIMESTAMP WITH TIME ZONE NOT NULL,
    version BIGINT NOT NULL,
    digest BYTEA NOT NULL,
    raw TEXT NOT NULL,
    asked_at TIMESTAMP WITH TIME ZONE NOT NULL,
    revision BIGINT NOT NULL,
    CONSTRAINT pk_orders PRIMARY KEY (platform, shop, order_id)
);
CREATE INDEX ix_orders_platform_modified_at ON orders (platform, modified_at DESC, order_id DESC);

CREATE TABLE audit_log (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    happened_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    project_id TEXT,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    path TEXT NOT NULL,
    who TEXT,
    reason TEXT,
    request_id TEXT NOT NULL,
    given JSONB,
    status SMALLINT,
    code TEXT,
    CONSTRAINT pk_audit_log PRIMARY KEY (id)
);
CREATE INDEX ix_audit_log_action_happened_at_id ON audit_log (action, happened_at, id);
CREATE INDEX ix_audit_log_actor_happened_at_id ON audit_log (actor, happened_at, id);
CREATE INDEX ix_audit_log_happened_at_id ON audit_log (happened_at, id);
CREATE INDEX ix_audit_log_project_id_happened_at_id ON audit_log (project_id, happened_at, id);

CREATE TABLE payload_keys (
    key_id TEXT NOT NULL,
    first_used_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_payload_keys PRIMARY KEY (key_id)
);

CREATE TABLE projects (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    revoked_at TIMESTAMP WITH TIME ZONE,
    quotas JSONB DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pk_projects PRIMARY KEY (id)
);

CREATE TABLE task_contents (
    task_id TEXT NOT NULL,
    ref TEXT NOT NULL,
    body TEXT NOT NULL,
    written_at TIMESTAMP WITH TIME ZONE DEFAULT now(),
    CONSTRAINT pk_task_contents PRIMARY KEY (task_id, ref)
);
CREATE INDEX ix_task_contents_written_at ON task_contents (written_at);

CREATE TABLE task_counts (
    type TEXT NOT NULL,
    pos INTEGER NOT NULL,
    status SMALLINT NOT NULL,
    tasks BIGINT NOT NULL,
    CONSTRAINT pk_task_counts PRIMARY KEY (type, pos, status)
);

CREATE TABLE task_keys (
    type TEXT NOT NULL,
    key TEXT NOT NULL,
    task_id TEXT NOT NULL,
    digest BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_task_keys PRIMARY KEY (type, key)
);
CREATE INDEX ix_task_keys_task_id ON task_keys USING hash (task_id);

CREATE TABLE task_texts_settled (
    is_one BOOLEAN DEFAULT true NOT NULL CONSTRAINT ck_task_texts_settled_one CHECK (is_one),
    settled_until TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_task_texts_settled PRIMARY KEY (is_one)
);

CREATE TABLE tasks_archive (
    task_id TEXT NOT NULL,
    type TEXT NOT NULL,
    pos INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    priority INTEGER NOT NULL,
    status SMALLINT NOT NULL,
    stage TEXT NOT NULL,
    crt_retry_num INTEGER NOT NULL,
    content TEXT NOT NULL,
    schedule_log TEXT NOT NULL,
    refs SMALLINT NOT NULL,
    order_time BIGINT NOT NULL,
    create_time BIGINT NOT NULL,
    modify_time BIGINT NOT NULL,
    attempts TEXT DEFAULT '' NOT NULL,
    lease BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT pk_tasks_archive PRIMARY KEY (task_id)
);
CREATE INDEX ix_tasks_archive_type_failed ON tasks_archive (type, modify_time) WHERE status = 4;
CREATE INDEX ix_tasks_archive_type_status ON tasks_archive (type, status, create_time DESC);

CREATE TABLE transfer_cancels (
    job_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    key BIGINT NOT NULL,
    cancelled_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_transfer_cancels PRIMARY KEY (job_id, project_id, key)
);
CREATE INDEX ix_transfer_cancels_cancelled_at ON transfer_cancels (cancelled_at);

CREATE TABLE transfer_jobs (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    job_id TEXT NOT NULL,
    closes_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deadline_at TIMESTAMP WITH TIME ZONE NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    purged_at TIMESTAMP WITH TIME ZONE,
    retry_of TEXT,
    CONSTRAINT pk_transfer_jobs PRIMARY KEY (id)
);
CREATE INDEX ix_transfer_jobs_expires_at ON transfer_jobs (expires_at);
CREATE INDEX ix_transfer_jobs_retry_of ON transfer_jobs (retry_of);
CREATE UNIQUE INDEX uq_transfer_jobs_job_id ON transfer_jobs (job_id);

CREATE TABLE transfer_targets (
    job BIGINT NOT NULL,
    key BIGINT NOT NULL,
    shard INTEGER NOT NULL,
    agent_id TEXT NOT NULL,
    container_id TEXT NOT NULL,
    state TEXT NOT NULL,
    sending INTEGER NOT NULL,
    failures SMALLINT NOT NULL,
    failed_in INTEGER NOT NULL,
    code INTEGER,
    reason TEXT,
    message TEXT NOT NULL,
    progress SMALLINT NOT NULL,
    speed BIGINT NOT NULL,
    failed_code INTEGER,
    failed_message TEXT DEFAULT '' NOT NULL,
    joined_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    is_retried BOOLEAN DEFAULT false NOT NULL,
    CONSTRAINT pk_transfer_targets PRIMARY KEY (job, key),
    CONSTRAINT ck_transfer_targets_state CHECK (state IN ('Pending', 'Running', 'Success', 'Failed', 'Timeout'))
)
 WITH (fillfactor = 50);
CREATE INDEX ix_transfer_targets_agent_id ON transfer_targets (agent_id, job DESC, key DESC);
CREATE INDEX ix_transfer_targets_job_reason ON transfer_targets (job, reason) WHERE reason IS NOT NULL;
CREATE INDEX ix_transfer_targets_job_shard ON transfer_targets (job, shard);

CREATE TABLE webhook_deliveries (
    delivery_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    owner_system TEXT DEFAULT 'downloads' NOT NULL,
    task_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    body TEXT NOT NULL,
    url TEXT NOT NULL,
    receiver TEXT NOT NULL,
    endpoint BYTEA NOT NULL,
    state TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    pending_since TIMESTAMP WITH TIME ZONE NOT NULL,
    attempts INTEGER NOT NULL,
    next_attempt_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    disabled_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_webhook_deliveries PRIMARY KEY (delivery_id),
    CONSTRAINT ck_webhook_deliveries_state CHECK (state IN ('pending', 'succeeded', 'failed', 'disabled'))
);
CREATE INDEX ix_webhook_deliveries_endpoint_disabled_at ON webhook_deliveries (endpoint, disabled_at) WHERE disabled_at IS NOT NULL;
CREATE INDEX ix_webhook_deliveries_finished_at ON webhook_deliveries (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX ix_webhook_deliveries_pending_since ON webhook_deliveries (pending_since) WHERE finished_at IS NULL;
CREATE INDEX ix_webhook_deliveries_task_id_created_at ON webhook_deliveries (task_id, created_at DESC);

CREATE TABLE api_keys (
    id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    hash BYTEA NOT NULL,
    pepper_id TEXT,
    last4 TEXT,
    name TEXT,
    key_right TEXT NOT NULL,
    systems TEXT[],
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    revoked_at TIMESTAMP WITH TIME ZONE,
    expires_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_api_keys PRIMARY KEY (id),
    CONSTRAINT fk_api_keys_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id),
    CONSTRAINT uq_api_keys_hash UNIQUE (hash)
);
CREATE INDEX ix_api_keys_project_id ON api_keys (project_id);

CREATE TABLE order_platforms (
    platform TEXT NOT NULL,
    project_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    shop TEXT NOT NULL,
    base_url TEXT NOT NULL,
    capability JSONB,
    notify TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    starts_at TIMESTAMP WITH TIME ZONE,
    history_to TIMESTAMP WITH TIME ZONE,
    live_from TIMESTAMP WITH TIME ZONE,
    claimed_to TIMESTAMP WITH TIME ZONE,
    complete_to TIMESTAMP WITH TIME ZONE,
    revision BIGINT NOT NULL,
    declared_revision BIGINT DEFAULT '0' NOT NULL,
    skew_seconds FLOAT,
    skew_at TIMESTAMP WITH TIME ZONE,
    clock_failed_since TIMESTAMP WITH TIME ZONE,
    clock_fault JSONB,
    clock_alarm_for TIMESTAMP WITH TIME ZONE,
    credentials_failed_since TIMESTAMP WITH TIME ZONE,
    credentials_fault JSONB,
    credentials_good_at TIMESTAMP WITH TIME ZONE,
    credentials_tried_at TIMESTAMP WITH TIME ZONE,
    credentials_alarm_for TIMESTAMP WITH TIME ZONE,
    unserved_since TIMESTAMP WITH TIME ZONE,
    unserved_alarm_by TEXT,
    skew_alarm_by TEXT,
    sweeps_alarm_by TEXT,
    zone_checked_at TIMESTAMP WITH TIME ZONE,
    removed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_order_platforms PRIMARY KEY (platform),
    CONSTRAINT fk_order_platforms_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE INDEX ix_order_platforms_project_id ON order_platforms (project_id);

CREATE TABLE schema_revisions (
    revision TEXT NOT NULL,
    oldest_code TEXT NOT NULL,
    migrated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_schema_revisions PRIMARY KEY (revision)
);

CREATE TABLE system_pauses (
    system TEXT NOT NULL,
    paused_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    who TEXT NOT NULL,
    reason TEXT NOT NULL,
    CONSTRAINT pk_system_pauses PRIMARY KEY (system)
);

CREATE TABLE task_types (
    type TEXT NOT NULL,
    project_id TEXT NOT NULL,
    name TEXT NOT NULL,
    schedule_limit INTEGER NOT NULL,
    schedule_interval INTEGER NOT NULL,
    max_retry_num INTEGER NOT NULL,
    max_retry_interval INTEGER NOT NULL,
    max_processing_time INTEGER NOT NULL,
    retry_interval INTEGER DEFAULT '1' NOT NULL,
    lease_required BOOLEAN DEFAULT false NOT NULL,
    paused BOOLEAN NOT NULL,
    version INTEGER NOT NULL,
    begin_pos INTEGER NOT NULL,
    end_pos INTEGER NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    removed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_task_types PRIMARY KEY (type),
    CONSTRAINT ck_task_types_type CHECK (type = project_id || '/' || name),
    CONSTRAINT fk_task_types_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE INDEX ix_task_types_name ON task_types (name, project_id);
CREATE INDEX ix_task_types_project_id ON task_types (project_id);

CREATE TABLE transfer_openings (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    project_id TEXT NOT NULL,
    biz_id BIGINT NOT NULL,
    app_id BIGINT,
    path_prefixes TEXT[] NOT NULL,
    folder_prefixes TEXT[] NOT NULL,
    users TEXT[] NOT NULL,
    hosts TEXT[] NOT NULL,
    CONSTRAINT pk_transfer_openings PRIMARY KEY (id),
    CONSTRAINT fk_transfer_openings_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE INDEX ix_transfer_openings_biz_id ON transfer_openings (biz_id);
CREATE INDEX ix_transfer_openings_project_id ON transfer_openings (project_id);

CREATE TABLE transfer_shards (
    job BIGINT NOT NULL,
    number INTEGER NOT NULL,
    project_id TEXT NOT NULL,
    signature TEXT NOT NULL,
    target_user TEXT NOT NULL,
    folder TEXT NOT NULL,
    file_name TEXT NOT NULL,
    holder TEXT,
    sendings JSONB NOT NULL,
    gse_trouble JSONB,
    CONSTRAINT pk_transfer_shards PRIMARY KEY (job, number),
    CONSTRAINT fk_transfer_shards_job_transfer_jobs FOREIGN KEY(job) REFERENCES transfer_jobs (id) ON DELETE CASCADE
);

CREATE TABLE webhook_attempts (
    attempt_id BIGINT GENERATED ALWAYS AS IDENTITY,
    delivery_id TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    duration_seconds FLOAT NOT NULL,
    status INTEGER,
    error TEXT,
    CONSTRAINT pk_webhook_attempts PRIMARY KEY (attempt_id),
    CONSTRAINT fk_webhook_attempts_delivery_id_webhook_deliveries FOREIGN KEY(delivery_id) REFERENCES webhook_deliveries (delivery_id) ON DELETE CASCADE
);
CREATE INDEX ix_webhook_attempts_delivery_id ON webhook_attempts (delivery_id, attempt_id DESC);

CREATE TABLE webhook_secrets (
    secret_id BIGINT GENERATED ALWAYS AS IDENTITY,
    project_id TEXT NOT NULL,
    sealed TEXT NOT NULL,
    last4 TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_webhook_secrets PRIMARY KEY (secret_id),
    CONSTRAINT fk_webhook_secrets_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE INDEX ix_webhook_secrets_project_id ON webhook_secrets (project_id);
CREATE UNIQUE INDEX uq_webhook_secrets_current ON webhook_secrets (project_id) WHERE expires_at IS NULL;

CREATE TABLE worker_heartbeats (
    identity TEXT NOT NULL,
    queues TEXT[] NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_worker_heartbeats PRIMARY KEY (identity)
);

CREATE TABLE order_backfills (
    backfill_id TEXT NOT NULL,
    platform TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    asked_at TIMESTAMP WITH TIME ZONE NOT NULL,
    start_at TIMESTAMP WITH TIME ZONE NOT NULL,
    end_at TIMESTAMP WITH TIME ZONE NOT NULL,
    state TEXT NOT NULL,
    slices INTEGER NOT NULL,
    read INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    read_to TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    fault JSONB,
    closed_by TEXT,
    CONSTRAINT pk_order_backfills PRIMARY KEY (backfill_id),
    CONSTRAINT ck_order_backfills_state CHECK (state IN ('running', 'succeeded', 'failed')),
    CONSTRAINT fk_order_backfills_platform_order_platforms FOREIGN KEY(platform) REFERENCES order_platforms (platform) ON DELETE CASCADE
);
CREATE INDEX ix_order_backfills_platform_asked_at ON order_backfills (platform, asked_at DESC, backfill_id DESC);
CREATE INDEX ix_order_backfills_running ON order_backfills (platform) WHERE state = 'running';

CREATE TABLE order_slices (
    slice_id BIGINT GENERATED ALWAYS AS IDENTITY,
    platform TEXT NOT NULL,
    start_at TIMESTAMP WITH TIME ZONE NOT NULL,
    end_at TIMESTAMP WITH TIME ZONE NOT NULL,
    track TEXT NOT NULL,
    claimed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    holder TEXT,
    attempts INTEGER NOT NULL,
    settings_version BIGINT,
    read_at TIMESTAMP WITH TIME ZONE,
    done_at TIMESTAMP WITH TIME ZONE,
    failed_at TIMESTAMP WITH TIME ZONE,
    skipped_at TIMESTAMP WITH TIME ZONE,
    split_at TIMESTAMP WITH TIME ZONE,
    swept_at TIMESTAMP WITH TIME ZONE,
    fault JSONB,
    reason TEXT,
    orders INTEGER,
    changed INTEGER,
    total INTEGER,
    passes INTEGER,
    pages INTEGER,
    outside INTEGER,
    undated INTEGER,
    missed INTEGER,
    late_seconds FLOAT,
    digest BYTEA,
    raw_key TEXT,
    reread_since TIMESTAMP WITH TIME ZONE,
    reread_at TIMESTAMP WITH TIME ZONE,
    reread_fault JSONB,
    reread_holder TEXT,
    sweep_holder TEXT,
    stale_told_at TIMESTAMP WITH TIME ZONE,
    stale_alarm_by TEXT,
    CONSTRAINT pk_order_slices PRIMARY KEY (slice_id),
    CONSTRAINT ck_order_slices_track CHECK (track IN ('live', 'history')),
    CONSTRAINT fk_order_slices_platform_order_platforms FOREIGN KEY(platform) REFERENCES order_platforms (platform) ON DELETE CASCADE
);
CREATE INDEX ix_order_slices_missed ON order_slices (platform) WHERE missed > 0;
CREATE INDEX ix_order_slices_reread ON order_slices (platform, start_at) WHERE reread_since IS NOT NULL;
CREATE INDEX ix_order_slices_stale ON order_slices (platform) WHERE stale_told_at IS NOT NULL;
CREATE INDEX ix_order_slices_sweep_failed ON order_slices (platform) WHERE done_at IS NOT NULL AND swept_at IS NULL AND failed_at IS NOT NULL;
CREATE INDEX ix_order_slices_unfinished ON order_slices (platform, start_at) WHERE done_at IS NULL AND skipped_at IS NULL AND split_at IS NULL;
CREATE INDEX ix_order_slices_unswept ON order_slices (platform, coalesce(failed_at, done_at)) WHERE done_at IS NOT NULL AND swept_at IS NULL;
CREATE UNIQUE INDEX uq_order_slices_leaf ON order_slices (platform, start_at) WHERE split_at IS NULL;
CREATE UNIQUE INDEX uq_order_slices_window ON order_slices (platform, start_at, end_at);

CREATE TABLE task_heads (
    type TEXT NOT NULL,
    pos INTEGER NOT NULL,
    number BIGINT NOT NULL,
    next_order_time BIGINT,
    next_lease_end BIGINT,
    due INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    running INTEGER NOT NULL,
    success INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    cancelled INTEGER DEFAULT '0' NOT NULL,
    held BIGINT NOT NULL,
    retries BIGINT NOT NULL,
    timeouts BIGINT NOT NULL,
    is_full BOOLEAN NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_task_heads PRIMARY KEY (type, pos),
    CONSTRAINT fk_task_heads_type_task_types FOREIGN KEY(type) REFERENCES task_types (type) ON DELETE CASCADE
);
