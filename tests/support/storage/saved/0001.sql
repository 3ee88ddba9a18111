BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE artifacts (
	id VARCHAR(66) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	model_digest VARCHAR(64) NOT NULL, 
	input_shapes JSON NOT NULL, 
	target TEXT NOT NULL, 
	device_key TEXT NOT NULL, 
	toolchain TEXT NOT NULL, 
	precision VARCHAR(16) NOT NULL, 
	report JSON NOT NULL, 
	published_median DOUBLE NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_artifacts PRIMARY KEY (id), 
	CONSTRAINT fk_artifacts_job_id FOREIGN KEY(job_id) REFERENCES jobs (id), 
	CONSTRAINT fk_artifacts_model_digest FOREIGN KEY(model_digest) REFERENCES models (digest), 
	CONSTRAINT uq_artifacts_digest UNIQUE (digest)
);
INSERT INTO "artifacts" VALUES('a-cd98c950d629','cd98c950d629c66548537b4ecd68dab3e8cf59974ba6e40df5a1a7354b39db5f',1000,'j-01kjmma2g0x4kad60xw8','97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','{"x":[1,3,48,192]}','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8','f32','{"timings":{"reference":{"samples":[0.0008,0.0008],"mean":0.0008,"median":0.0008,"p90":0.0008,"p99":0.0008,"min":0.0008,"max":0.0008,"std":0.0},"untuned":{"samples":[0.001,0.001],"mean":0.001,"median":0.001,"p90":0.001,"p99":0.001,"min":0.001,"max":0.001,"std":0.0},"tuned":{"samples":[0.0005,0.0005],"mean":0.0005,"median":0.0005,"p90":0.0005,"p99":0.0005,"min":0.0005,"max":0.0005,"std":0.0}},"verifications":{"untuned":{"variant":"untuned","seeds":[0,1,2],"outputs":[{"output":"softmax","dtype":"float32","max_abs":1e-07,"max_rel":1e-06,"atol":1e-05,"rtol":0.0001,"passed":true}]},"tuned":{"variant":"tuned","seeds":[0,1,2],"outputs":[{"output":"softmax","dtype":"float32","max_abs":1e-07,"max_rel":1e-06,"atol":1e-05,"rtol":0.0001,"passed":true}]}},"published":"tuned","speedup_over_untuned":2.0,"speedup_over_reference":1.6,"summary":"tuned runs twice as fast as untuned"}',0.0005,'2026-03-01 12:00:00.000000');
CREATE TABLE idempotency_keys (
	key_digest VARCHAR(64) NOT NULL, 
	fingerprint TEXT NOT NULL, 
	answer TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_idempotency_keys PRIMARY KEY (key_digest)
);
INSERT INTO "idempotency_keys" VALUES('2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683','fingerprint','j-01kjmma2g0x4kad60xw8','2026-03-01 12:00:00.000000');
CREATE TABLE job_events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id VARCHAR(40) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	data JSON NOT NULL, 
	at DATETIME NOT NULL, 
	CONSTRAINT fk_job_events_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "job_events" VALUES(1,'j-01kjmma2g0x4kad60xw8','state','{"state":"queued"}','2026-03-01 12:00:00.000000');
INSERT INTO "job_events" VALUES(2,'j-01kjmma2g0x4kad60xw8','state','{"state":"running"}','2026-03-01 12:00:00.000000');
INSERT INTO "job_events" VALUES(3,'j-01kjmma2g0x4kad60xw8','state','{"state":"succeeded"}','2026-03-01 12:00:00.000000');
CREATE TABLE job_labels (
	job_id VARCHAR(40) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	value VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_job_labels PRIMARY KEY (job_id, name), 
	CONSTRAINT fk_job_labels_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "job_labels" VALUES('j-01kjmma2g0x4kad60xw8','branch','main');
CREATE TABLE job_stages (
	job_id VARCHAR(40) NOT NULL, 
	stage VARCHAR(16) NOT NULL, 
	attempt INTEGER NOT NULL, 
	outcome JSON NOT NULL, 
	started_at DATETIME NOT NULL, 
	finished_at DATETIME NOT NULL, 
	CONSTRAINT pk_job_stages PRIMARY KEY (job_id, stage), 
	CONSTRAINT fk_job_stages_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "job_stages" VALUES('j-01kjmma2g0x4kad60xw8','import',1,'{"folded":true}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000');
CREATE TABLE jobs (
	id VARCHAR(40) NOT NULL, 
	model_digest VARCHAR(64) NOT NULL, 
	request JSON NOT NULL, 
	priority INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	stage VARCHAR(16), 
	failure JSON, 
	placement JSON, 
	target TEXT, 
	device_key TEXT, 
	toolchain TEXT, 
	claims INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	worker_id TEXT, 
	lease_expires_at DATETIME, 
	trials_done INTEGER NOT NULL, 
	trials_planned INTEGER NOT NULL, 
	artifact_id VARCHAR(66), 
	created_at DATETIME NOT NULL, 
	published_at DATETIME, 
	started_at DATETIME, 
	finished_at DATETIME, 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT fk_jobs_model_digest FOREIGN KEY(model_digest) REFERENCES models (digest)
);
INSERT INTO "jobs" VALUES('j-01kjmma2g0x4kad60xw8','97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','{"model_digest":"97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c","budget":{"trials":64,"seconds":null},"target":"native","threads":null,"tuner":"auto","runner":"local","precision":"f32","input_shapes":{"x":[1,3,48,192]},"measure":{"number":1,"repeat":3,"min_repeat_ms":20,"timeout":10.0,"enable_cpu_cache_flush":false,"n_parallel":null},"tuner_options":{"early_stopping":null,"n_trial":null,"loss_type":"rank-binary","feature_type":"knob"},"priority":5,"labels":{"branch":"main"}}',5,'succeeded','publish',NULL,'{"target":{"text":"llvm -mcpu=znver3","threads":2},"device":{"key":"AMD EPYC 7R13 avx2 t2","name":"AMD EPYC 7R13","threads":2},"toolchain":{"engine":"relay","tvm":"0.19.0","llvm":"22.1.8"}}','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8',1,1,NULL,NULL,2,2,'a-cd98c950d629','2026-03-01 12:00:00.000000',NULL,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000');
CREATE TABLE models (
	digest VARCHAR(64) NOT NULL, 
	id VARCHAR(66) NOT NULL, 
	name TEXT NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	facts JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_models PRIMARY KEY (digest), 
	CONSTRAINT uq_models_id UNIQUE (id)
);
INSERT INTO "models" VALUES('97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','m-97ff8a35544d','cls.onnx',585532,'{"inputs":[{"name":"x","dtype":"float32","shape":["batch",3,null,192]}],"outputs":[{"name":"softmax","dtype":"float32","shape":[null,2]}],"opset":11,"ir_version":7,"operators":{"Conv":53,"com.microsoft::FusedConv":1},"parameters":137250}','2026-03-01 12:00:00.000000');
CREATE TABLE records (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id VARCHAR(40) NOT NULL, 
	workload_digest VARCHAR(64) NOT NULL, 
	workload_key TEXT NOT NULL, 
	target TEXT NOT NULL, 
	device_key TEXT NOT NULL, 
	toolchain TEXT NOT NULL, 
	tuner VARCHAR(32) NOT NULL, 
	schedule_digest VARCHAR(64) NOT NULL, 
	schedule TEXT NOT NULL, 
	latency DOUBLE, 
	latencies JSON NOT NULL, 
	error VARCHAR(32), 
	error_message TEXT, 
	trial_number INTEGER NOT NULL, 
	worker_id TEXT NOT NULL, 
	finished_at DATETIME NOT NULL, 
	CONSTRAINT uq_records_job_id_workload_digest_schedule_digest UNIQUE (job_id, workload_digest, schedule_digest)
);
INSERT INTO "records" VALUES(1,'j-01kjmma2g0x4kad60xw8','d6a98598212ed729f5b9a4d1b7ff4dcc1341bbfc740993325b9107298521422f','dense','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8','autotvm','ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb','a',0.0015,'[0.001,0.002]',NULL,NULL,0,'host:1:2','2026-03-01 12:00:00.000000');
INSERT INTO "records" VALUES(2,'j-01kjmma2g0x4kad60xw8','d6a98598212ed729f5b9a4d1b7ff4dcc1341bbfc740993325b9107298521422f','dense','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8','autotvm','3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d','b',NULL,'[]','build_error','it broke',0,'host:1:2','2026-03-01 12:00:00.000000');
CREATE TABLE tuning_tasks (
	job_id VARCHAR(40) NOT NULL, 
	position INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	workload_digest VARCHAR(64) NOT NULL, 
	workload_key TEXT NOT NULL, 
	description TEXT NOT NULL, 
	weight INTEGER NOT NULL, 
	flop DOUBLE NOT NULL, 
	space_size BIGINT NOT NULL, 
	trials_planned INTEGER NOT NULL, 
	CONSTRAINT pk_tuning_tasks PRIMARY KEY (job_id, position), 
	CONSTRAINT fk_tuning_tasks_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "tuning_tasks" VALUES('j-01kjmma2g0x4kad60xw8',0,'dense_pack.x86','d6a98598212ed729f5b9a4d1b7ff4dcc1341bbfc740993325b9107298521422f','dense','dense 1×512 ∗ 10×512',2,10240.0,1099511627776,16);
CREATE TABLE workers (
	id TEXT NOT NULL, 
	hostname TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	device JSON NOT NULL, 
	native_target JSON NOT NULL, 
	toolchains JSON NOT NULL, 
	current_job VARCHAR(40), 
	started_at DATETIME NOT NULL, 
	last_seen_at DATETIME NOT NULL, 
	CONSTRAINT pk_workers PRIMARY KEY (id)
);
INSERT INTO "workers" VALUES('host:1:2','host',1,'{"key":"AMD EPYC 7R13 avx2 t2","name":"AMD EPYC 7R13","threads":2}','{"text":"llvm -mcpu=znver3","threads":2}','[{"engine":"relay","tvm":"0.19.0","llvm":"22.1.8"}]',NULL,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000');
CREATE INDEX ix_idempotency_keys_created_at ON idempotency_keys (created_at);
CREATE INDEX ix_models_created_at_id ON models (created_at, id);
CREATE INDEX ix_records_lookup ON records (workload_digest, target, device_key, toolchain, latency);
CREATE INDEX ix_workers_last_seen_at ON workers (last_seen_at);
CREATE INDEX ix_jobs_created_at_id ON jobs (created_at, id);
CREATE INDEX ix_jobs_model_digest_created_at ON jobs (model_digest, created_at);
CREATE INDEX ix_jobs_state_created_at ON jobs (state, created_at);
CREATE INDEX ix_artifacts_best ON artifacts (model_digest, target, device_key, published_median);
CREATE INDEX ix_artifacts_job_id ON artifacts (job_id);
CREATE INDEX ix_job_events_job_id_id ON job_events (job_id, id);
CREATE INDEX ix_job_labels_name_value ON job_labels (name, value);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('job_events',3);
INSERT INTO "sqlite_sequence" VALUES('records',2);
COMMIT;
