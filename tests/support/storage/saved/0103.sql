BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0103');
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
	bundle_format VARCHAR(16) DEFAULT 'shared' NOT NULL, 
	verified BOOLEAN DEFAULT 1 NOT NULL, 
	report JSON NOT NULL, 
	published_median DOUBLE, 
	created_at DATETIME NOT NULL, 
	deleted_at DATETIME, sizes JSON, 
	CONSTRAINT pk_artifacts PRIMARY KEY (id), 
	CONSTRAINT fk_artifacts_job_id FOREIGN KEY(job_id) REFERENCES jobs (id), 
	CONSTRAINT fk_artifacts_model_digest FOREIGN KEY(model_digest) REFERENCES models (digest), 
	CONSTRAINT uq_artifacts_digest UNIQUE (digest)
);
INSERT INTO "artifacts" VALUES('a-cd98c950d629','cd98c950d629c66548537b4ecd68dab3e8cf59974ba6e40df5a1a7354b39db5f',1000,'j-01kjmma2g0x1vtpxvp3h','97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','{"x":[1,3,48,192]}','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8','f32','shared',1,'{"timings":{"reference":{"samples":[0.0008,0.0008],"mean":0.0008,"median":0.0008,"p90":0.0008,"p99":0.0008,"min":0.0008,"max":0.0008,"std":0.0,"ci_low":null,"ci_high":null,"processes":1},"untuned":{"samples":[0.001,0.001],"mean":0.001,"median":0.001,"p90":0.001,"p99":0.001,"min":0.001,"max":0.001,"std":0.0,"ci_low":null,"ci_high":null,"processes":1},"tuned":{"samples":[0.0005,0.0005],"mean":0.0005,"median":0.0005,"p90":0.0005,"p99":0.0005,"min":0.0005,"max":0.0005,"std":0.0,"ci_low":null,"ci_high":null,"processes":1}},"verifications":{"untuned":{"variant":"untuned","seeds":[0,1,2],"outputs":[{"output":"softmax","dtype":"float32","max_abs":1e-07,"max_rel":1e-06,"atol":1e-05,"rtol":0.0001,"passed":true,"top1":null,"not_finite":0,"least_top1":null,"not_compared":false,"empty":false,"rounding":null,"ties":0,"rms":null,"rms_limit":null,"part":null,"fault":null}],"precision":"f32","inputs":{},"rows":null},"tuned":{"variant":"tuned","seeds":[0,1,2],"outputs":[{"output":"softmax","dtype":"float32","max_abs":1e-07,"max_rel":1e-06,"atol":1e-05,"rtol":0.0001,"passed":true,"top1":null,"not_finite":0,"least_top1":null,"not_compared":false,"empty":false,"rounding":null,"ties":0,"rms":null,"rms_limit":null,"part":null,"fault":null}],"precision":"f32","inputs":{},"rows":null}},"published":"tuned","speedup_over_untuned":2.0,"speedup_over_reference":1.6,"runtime":"tvm","runtime_variant":null,"runtime_version":"","runtime_model":"","runtime_options":{},"summary":"tuned runs twice as fast as untuned","engines":{},"choice":[],"failed_tasks":[],"compared_with":"ONNX Runtime","precision":"f32","portfolio":[],"conditions":null,"emulator":"","format_verification":null,"data":null}',0.0005,'2026-03-01 12:00:00.000000',NULL,NULL);
INSERT INTO "artifacts" VALUES('a-f0a613ed6eeb','f0a613ed6eebe40f33ab4c3f17ec84ac3bb76c2f9e1c734a2942c7d6e6d165f4',1000,'j-01kjmma2g0de6x0ymvxa','97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','{"x":[0,3,48,192]}','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8','f32','shared',1,'{"timings":{"reference":{"samples":[0.0008,0.0008],"mean":0.0008,"median":0.0008,"p90":0.0008,"p99":0.0008,"min":0.0008,"max":0.0008,"std":0.0,"ci_low":null,"ci_high":null,"processes":1},"untuned":{"samples":[0.001,0.001],"mean":0.001,"median":0.001,"p90":0.001,"p99":0.001,"min":0.001,"max":0.001,"std":0.0,"ci_low":null,"ci_high":null,"processes":1},"tuned":{"samples":[0.0005,0.0005],"mean":0.0005,"median":0.0005,"p90":0.0005,"p99":0.0005,"min":0.0005,"max":0.0005,"std":0.0,"ci_low":null,"ci_high":null,"processes":1}},"verifications":{"untuned":{"variant":"untuned","seeds":[0,1,2],"outputs":[{"output":"softmax","dtype":"float32","max_abs":1e-07,"max_rel":1e-06,"atol":1e-05,"rtol":0.0001,"passed":true,"top1":null,"not_finite":0,"least_top1":null,"not_compared":false,"empty":false,"rounding":null,"ties":0,"rms":null,"rms_limit":null,"part":null,"fault":null}],"precision":"f32","inputs":{},"rows":null},"tuned":{"variant":"tuned","seeds":[0,1,2],"outputs":[{"output":"softmax","dtype":"float32","max_abs":1e-07,"max_rel":1e-06,"atol":1e-05,"rtol":0.0001,"passed":true,"top1":null,"not_finite":0,"least_top1":null,"not_compared":false,"empty":false,"rounding":null,"ties":0,"rms":null,"rms_limit":null,"part":null,"fault":null}],"precision":"f32","inputs":{},"rows":null}},"published":"tuned","speedup_over_untuned":2.0,"speedup_over_reference":1.6,"runtime":"tvm","runtime_variant":null,"runtime_version":"","runtime_model":"","runtime_options":{},"summary":"tuned runs twice as fast as untuned","engines":{},"choice":[],"failed_tasks":[],"compared_with":"ONNX Runtime","precision":"f32","portfolio":[],"conditions":null,"emulator":"","format_verification":null,"data":null}',0.0005,'2026-03-01 12:00:00.000000',NULL,'[{"name":"batch=1","values":{"batch":1},"input_shapes":{"x":[1,3,48,192]},"share":0.5},{"name":"batch=8","values":{"batch":8},"input_shapes":{"x":[8,3,48,192]},"share":0.5}]');
CREATE TABLE browser_sessions (
	secret_digest VARCHAR(64) NOT NULL, 
	is_link BOOLEAN NOT NULL, 
	token_id VARCHAR(40), 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, 
	CONSTRAINT pk_browser_sessions PRIMARY KEY (secret_digest), 
	CONSTRAINT fk_browser_sessions_token_id FOREIGN KEY(token_id) REFERENCES tokens (id) ON DELETE CASCADE
);
INSERT INTO "browser_sessions" VALUES('2222222222222222222222222222222222222222222222222222222222222222',1,'t-1','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000');
CREATE TABLE data_sets (
	id VARCHAR(40) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	owner VARCHAR(100) NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	facts JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	deleted_at DATETIME, 
	CONSTRAINT pk_data_sets PRIMARY KEY (id)
);
INSERT INTO "data_sets" VALUES('s-01kjmma2g0j01xxswbj6','dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd','val','team',9,'{"arrays":[{"name":"x","dtype":"float32","shape":[2,3]}],"rows":2}','2026-03-01 12:00:00.000000',NULL);
CREATE TABLE extractions (
	key_digest VARCHAR(64) NOT NULL, 
	tasks JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_extractions PRIMARY KEY (key_digest)
);
INSERT INTO "extractions" VALUES('0000000000000000000000000000000000000000000000000000000000000000','[{"position":0,"name":"dense_pack.x86","workload_key":"dense","description":"dense 1×512 ∗ 10×512","weight":2,"flop":10240.0,"space_size":1099511627776,"definition":null,"alternatives":0}]','2026-03-01 12:00:00.000000');
CREATE TABLE idempotency_keys (
	key_digest VARCHAR(64) NOT NULL, 
	fingerprint TEXT NOT NULL, 
	answer TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_idempotency_keys PRIMARY KEY (key_digest)
);
INSERT INTO "idempotency_keys" VALUES('3333333333333333333333333333333333333333333333333333333333333333','fingerprint','j-01kjmma2g0x1vtpxvp3h','2026-03-01 12:00:00.000000');
CREATE TABLE identity (
	number INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	made_at DATETIME NOT NULL, 
	CONSTRAINT pk_identity PRIMARY KEY (number)
);
INSERT INTO "identity" VALUES(1,'d-01kjmma2g0hrztf09qmj','2026-03-01 12:00:00.000000');
CREATE TABLE imported_records (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	owner VARCHAR(100) NOT NULL, 
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
	finished_at DATETIME NOT NULL, 
	imported_at DATETIME NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	message TEXT, 
	job_id VARCHAR(40), 
	CONSTRAINT uq_imported_records_schedule UNIQUE (owner, workload_digest, target, device_key, toolchain, schedule_digest)
);
INSERT INTO "imported_records" VALUES(1,'team','d6a98598212ed729f5b9a4d1b7ff4dcc1341bbfc740993325b9107298521422f','dense','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8','autotvm','2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6','c',1.0e-12,'[1e-12]',NULL,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','untried',NULL,NULL);
CREATE TABLE job_events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id VARCHAR(40) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	data JSON NOT NULL, 
	at DATETIME NOT NULL, 
	CONSTRAINT fk_job_events_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "job_events" VALUES(1,'j-01kjmma2g0x1vtpxvp3h','state','{"state":"queued"}','2026-03-01 12:00:00.000000');
INSERT INTO "job_events" VALUES(2,'j-01kjmma2g0x1vtpxvp3h','state','{"state":"running"}','2026-03-01 12:00:00.000000');
INSERT INTO "job_events" VALUES(3,'j-01kjmma2g0x1vtpxvp3h','state','{"state":"succeeded"}','2026-03-01 12:00:00.000000');
INSERT INTO "job_events" VALUES(4,'j-01kjmma2g0de6x0ymvxa','state','{"state":"queued"}','2026-03-01 12:00:00.000000');
INSERT INTO "job_events" VALUES(5,'j-01kjmma2g109z77qeyn9','state','{"state":"queued"}','2026-03-01 12:00:00.001000');
INSERT INTO "job_events" VALUES(6,'j-01kjmma2g2gq74brqz12','state','{"state":"queued"}','2026-03-01 12:00:00.002000');
INSERT INTO "job_events" VALUES(7,'j-01kjmma2g06442ywnyk9','state','{"state":"queued"}','2026-03-01 12:00:00.000000');
INSERT INTO "job_events" VALUES(8,'j-01kjmma2g06442ywnyk9','state','{"state":"running"}','2026-03-01 12:00:00.000000');
CREATE TABLE job_labels (
	job_id VARCHAR(40) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	value VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_job_labels PRIMARY KEY (job_id, name), 
	CONSTRAINT fk_job_labels_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "job_labels" VALUES('j-01kjmma2g0x1vtpxvp3h','branch','main');
CREATE TABLE job_logs (
	job_id VARCHAR(40) NOT NULL, 
	attempt INTEGER NOT NULL, 
	start BIGINT NOT NULL, 
	size BIGINT NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_job_logs PRIMARY KEY (job_id), 
	CONSTRAINT fk_job_logs_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "job_logs" VALUES('j-01kjmma2g0x1vtpxvp3h',1,7,18,X'6275696C64696E670AFF0A');
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
INSERT INTO "job_stages" VALUES('j-01kjmma2g0x1vtpxvp3h','import',1,'{"placement":[],"files":["prepared.onnx"],"choice":[],"inputs":[{"name":"x","dtype":"float32","shape":[1,3,48,192]}],"outputs":[{"name":"y","dtype":"float32","shape":[1,2]}],"operators":{"Conv":3},"folded":true,"memory_bytes":null,"engines":["relay"],"refused":{"relax":{"code":"unsupported_operators","message":"no Foo","operators":{"Foo":1}}},"precisions":["f32","int8"],"rewritings":{"aligned":2},"rewritten":["relay"]}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000');
CREATE TABLE "jobs" (
	id VARCHAR(40) NOT NULL, 
	owner VARCHAR(100) DEFAULT 'local' NOT NULL, 
	token_id VARCHAR(40), 
	group_name VARCHAR(200), 
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
	trace_parent VARCHAR(64), 
	waits_until DATETIME, 
	started_at DATETIME, 
	finished_at DATETIME, 
	part_of VARCHAR(40), 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT fk_jobs_model_digest FOREIGN KEY(model_digest) REFERENCES models (digest), 
	CONSTRAINT fk_jobs_part_of FOREIGN KEY(part_of) REFERENCES jobs (id)
);
INSERT INTO "jobs" VALUES('j-01kjmma2g0x1vtpxvp3h','local',NULL,NULL,'97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','{"model_digest":"97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c","budget":{"trials":64,"seconds":null,"total_seconds":null},"target":"native","threads":null,"tuner":"auto","runner":"local","rpc":null,"device":null,"precision":"f32","accuracy":{"max_rel":null,"top1":null},"bundle_format":"shared","runtimes":["tvm","onnxruntime","openvino"],"input_shapes":{"x":[1,3,48,192]},"sizes":[],"padding":{},"data":null,"measure":{"number":1,"repeat":3,"min_repeat_ms":10,"timeout":10.0,"enable_cpu_cache_flush":false,"n_parallel":null,"cooldown_interval":0.0},"tuner_options":{"search":"xgb","early_stopping":null,"n_trial":null,"loss_type":"rank-binary","feature_type":"knob","keep_layout":true,"transfer":true,"rewrite":true,"layout":null},"priority":5,"labels":{"branch":"main"},"group":null}',5,'succeeded','publish',NULL,'{"target":{"text":"llvm -mcpu=znver3","threads":2},"device":{"key":"AMD EPYC 7R13 avx2 t2","name":"AMD EPYC 7R13","threads":2},"toolchain":{"engine":"relay","tvm":"0.19.0","llvm":"22.1.8"}}','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8',1,1,NULL,NULL,2,2,'a-cd98c950d629','2026-03-01 12:00:00.000000',NULL,NULL,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL);
INSERT INTO "jobs" VALUES('j-01kjmma2g0de6x0ymvxa','local',NULL,NULL,'97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','{"model_digest":"97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c","budget":{"trials":64,"seconds":null,"total_seconds":null},"target":"native","threads":null,"tuner":"auto","runner":"local","rpc":null,"device":null,"precision":"f32","accuracy":{"max_rel":null,"top1":null},"bundle_format":"shared","runtimes":["tvm","onnxruntime","openvino"],"input_shapes":{},"sizes":[{"name":"batch=1","values":{"batch":1},"input_shapes":{"x":[1,3,48,192]},"share":0.5},{"name":"batch=8","values":{"batch":8},"input_shapes":{"x":[8,3,48,192]},"share":0.5}],"padding":{},"data":null,"measure":{"number":1,"repeat":3,"min_repeat_ms":10,"timeout":10.0,"enable_cpu_cache_flush":false,"n_parallel":null,"cooldown_interval":0.0},"tuner_options":{"search":"xgb","early_stopping":null,"n_trial":null,"loss_type":"rank-binary","feature_type":"knob","keep_layout":true,"transfer":true,"rewrite":true,"layout":null},"priority":5,"labels":{},"group":null}',5,'queued',NULL,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,0,0,NULL,'2026-03-01 12:00:00.000000',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('j-01kjmma2g109z77qeyn9','local',NULL,NULL,'97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','{"model_digest":"97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c","budget":{"trials":32,"seconds":null,"total_seconds":null},"target":"native","threads":null,"tuner":"auto","runner":"local","rpc":null,"device":null,"precision":"f32","accuracy":{"max_rel":null,"top1":null},"bundle_format":"shared","runtimes":["tvm"],"input_shapes":{"x":[1,3,48,192]},"sizes":[],"padding":{},"data":null,"measure":{"number":1,"repeat":3,"min_repeat_ms":10,"timeout":10.0,"enable_cpu_cache_flush":false,"n_parallel":null,"cooldown_interval":0.0},"tuner_options":{"search":"xgb","early_stopping":null,"n_trial":null,"loss_type":"rank-binary","feature_type":"knob","keep_layout":true,"transfer":true,"rewrite":true,"layout":null},"priority":5,"labels":{},"group":null}',5,'queued',NULL,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,0,0,NULL,'2026-03-01 12:00:00.001000',NULL,NULL,NULL,NULL,'j-01kjmma2g0de6x0ymvxa');
INSERT INTO "jobs" VALUES('j-01kjmma2g2gq74brqz12','local',NULL,NULL,'97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','{"model_digest":"97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c","budget":{"trials":32,"seconds":null,"total_seconds":null},"target":"native","threads":null,"tuner":"auto","runner":"local","rpc":null,"device":null,"precision":"f32","accuracy":{"max_rel":null,"top1":null},"bundle_format":"shared","runtimes":["tvm"],"input_shapes":{"x":[8,3,48,192]},"sizes":[],"padding":{},"data":null,"measure":{"number":1,"repeat":3,"min_repeat_ms":10,"timeout":10.0,"enable_cpu_cache_flush":false,"n_parallel":null,"cooldown_interval":0.0},"tuner_options":{"search":"xgb","early_stopping":null,"n_trial":null,"loss_type":"rank-binary","feature_type":"knob","keep_layout":true,"transfer":true,"rewrite":true,"layout":null},"priority":5,"labels":{},"group":null}',5,'queued',NULL,NULL,NULL,NULL,NULL,NULL,0,0,NULL,NULL,0,0,NULL,'2026-03-01 12:00:00.002000',NULL,NULL,NULL,NULL,'j-01kjmma2g0de6x0ymvxa');
INSERT INTO "jobs" VALUES('j-01kjmma2g06442ywnyk9','local',NULL,NULL,'97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','{"model_digest":"97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c","budget":{"trials":64,"seconds":null,"total_seconds":null},"target":"native","threads":null,"tuner":"auto","runner":"local","rpc":null,"device":null,"precision":"f32","accuracy":{"max_rel":null,"top1":null},"bundle_format":"shared","runtimes":["tvm","onnxruntime","openvino"],"input_shapes":{},"sizes":[],"padding":{},"data":null,"measure":{"number":1,"repeat":3,"min_repeat_ms":10,"timeout":10.0,"enable_cpu_cache_flush":false,"n_parallel":null,"cooldown_interval":0.0},"tuner_options":{"search":"xgb","early_stopping":null,"n_trial":null,"loss_type":"rank-binary","feature_type":"knob","keep_layout":true,"transfer":true,"rewrite":true,"layout":null},"priority":5,"labels":{},"group":null}',5,'running',NULL,NULL,NULL,NULL,NULL,NULL,1,1,'w','2026-03-01 12:01:00.000000',0,0,NULL,'2026-03-01 12:00:00.000000',NULL,NULL,'2026-03-01 12:00:00.000000',NULL,NULL);
CREATE TABLE model_owners (
	model_digest VARCHAR(64) NOT NULL, 
	owner VARCHAR(100) NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_model_owners PRIMARY KEY (model_digest, owner), 
	CONSTRAINT fk_model_owners_model_digest FOREIGN KEY(model_digest) REFERENCES models (digest) ON DELETE CASCADE
);
INSERT INTO "model_owners" VALUES('97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','local','2026-03-01 12:00:00.000000');
CREATE TABLE models (
	digest VARCHAR(64) NOT NULL, 
	id VARCHAR(66) NOT NULL, 
	name TEXT NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	facts JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	deleted_at DATETIME, 
	CONSTRAINT pk_models PRIMARY KEY (digest), 
	CONSTRAINT uq_models_id UNIQUE (id)
);
INSERT INTO "models" VALUES('97ff8a35544dcf40ad84047074439dd6aa3a0be469ea578a1b1c017d939ec61c','m-97ff8a35544d','cls.onnx',585532,'{"inputs":[{"name":"x","dtype":"float32","shape":["batch",3,null,192]}],"outputs":[{"name":"softmax","dtype":"float32","shape":[null,2]}],"opset":11,"ir_version":7,"operators":{"Conv":53,"com.microsoft::FusedConv":1},"parameters":137250,"format":"onnx"}','2026-03-01 12:00:00.000000',NULL);
CREATE TABLE periodic_tasks (
	name VARCHAR(40) NOT NULL, 
	begun_at DATETIME NOT NULL, 
	CONSTRAINT pk_periodic_tasks PRIMARY KEY (name)
);
INSERT INTO "periodic_tasks" VALUES('garbage','2026-03-01 12:00:00.000000');
CREATE TABLE quarantined_devices (
	id VARCHAR(255) NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	reason TEXT NOT NULL, 
	since DATETIME NOT NULL, 
	until DATETIME NOT NULL, 
	CONSTRAINT pk_quarantined_devices PRIMARY KEY (id)
);
INSERT INTO "quarantined_devices" VALUES('tracker:9190/board/device:9090','j-01kjmma2g0x1vtpxvp3h','gone','2026-03-01 12:00:00.000000','2026-03-01 12:10:00.000000');
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
	calibration DOUBLE, 
	CONSTRAINT uq_records_job_id_workload_digest_schedule_digest UNIQUE (job_id, workload_digest, schedule_digest)
);
INSERT INTO "records" VALUES(1,'j-01kjmma2g0x1vtpxvp3h','d6a98598212ed729f5b9a4d1b7ff4dcc1341bbfc740993325b9107298521422f','dense','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8','autotvm','ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb','a',0.0015,'[0.001,0.002]',NULL,NULL,0,'host:1:2','2026-03-01 12:00:00.000000',9.1e-05);
INSERT INTO "records" VALUES(2,'j-01kjmma2g0x1vtpxvp3h','d6a98598212ed729f5b9a4d1b7ff4dcc1341bbfc740993325b9107298521422f','dense','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8','autotvm','3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d','b',NULL,'[]','build_error','it broke',0,'host:1:2','2026-03-01 12:00:00.000000',NULL);
CREATE TABLE shared_rounds (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id VARCHAR(40) NOT NULL, 
	attempt INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	workload_digest VARCHAR(64) NOT NULL, 
	workload_key TEXT NOT NULL, 
	tuner VARCHAR(32) NOT NULL, 
	target TEXT NOT NULL, 
	device_key TEXT NOT NULL, 
	toolchain TEXT NOT NULL, 
	request JSON NOT NULL, 
	trials INTEGER NOT NULL, 
	first_trial INTEGER NOT NULL, 
	seconds_limit DOUBLE, 
	lock_place VARCHAR(64) NOT NULL, 
	known_to TEXT, 
	worker_id TEXT, 
	lease_expires_at DATETIME, 
	opened_at DATETIME NOT NULL, 
	seconds DOUBLE, 
	exhausted BOOLEAN, 
	default_latency DOUBLE, 
	failure JSON, 
	CONSTRAINT fk_shared_rounds_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "shared_rounds" VALUES(1,'j-01kjmma2g06442ywnyk9',1,'open','d6a98598212ed729f5b9a4d1b7ff4dcc1341bbfc740993325b9107298521422f','dense','autotvm','llvm -mcpu=znver3 -num-cores=2','AMD EPYC 7R13 avx2 t2','relay/tvm-0.19.0/llvm-22.1.8','{"target":"llvm -mcpu=znver3","threads":2}',8,0,NULL,'leader''s',NULL,NULL,NULL,'2026-03-01 12:00:00.000000',NULL,NULL,NULL,NULL);
CREATE TABLE tokens (
	id VARCHAR(40) NOT NULL, 
	secret_digest VARCHAR(64) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	owner VARCHAR(100) NOT NULL, 
	scopes JSON NOT NULL, 
	quota JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	last_used_at DATETIME, 
	revoked_at DATETIME, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_secret_digest UNIQUE (secret_digest)
);
INSERT INTO "tokens" VALUES('t-1','1111111111111111111111111111111111111111111111111111111111111111','ci','team','["read","submit"]','{"queued_jobs":5}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL);
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
	alternatives INTEGER, 
	trials_planned INTEGER NOT NULL, 
	effort_trials DOUBLE, 
	effort_seconds DOUBLE, 
	CONSTRAINT pk_tuning_tasks PRIMARY KEY (job_id, position), 
	CONSTRAINT fk_tuning_tasks_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "tuning_tasks" VALUES('j-01kjmma2g0x1vtpxvp3h',0,'dense_pack.x86','d6a98598212ed729f5b9a4d1b7ff4dcc1341bbfc740993325b9107298521422f','dense','dense 1×512 ∗ 10×512',2,10240.0,1099511627776,0,16,64.0,12.5);
CREATE TABLE webhook_deliveries (
	id VARCHAR(40) NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	attempts INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	next_attempt_at DATETIME, 
	delivered_at DATETIME, 
	last_status INTEGER, 
	last_error TEXT, 
	CONSTRAINT pk_webhook_deliveries PRIMARY KEY (id), 
	CONSTRAINT fk_webhook_deliveries_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "webhook_deliveries" VALUES('w-1','j-01kjmma2g0x1vtpxvp3h',1,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL,503,'the receiver answered 503');
CREATE TABLE webhooks (
	job_id VARCHAR(40) NOT NULL, 
	url TEXT NOT NULL, 
	secret TEXT NOT NULL, 
	CONSTRAINT pk_webhooks PRIMARY KEY (job_id), 
	CONSTRAINT fk_webhooks_job_id FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "webhooks" VALUES('j-01kjmma2g0x1vtpxvp3h','https://ci.example/hook','whsec_AAAA');
CREATE TABLE workers (
	id TEXT NOT NULL, 
	hostname TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	device JSON NOT NULL, 
	native_target JSON NOT NULL, 
	accelerators JSON DEFAULT '[]' NOT NULL, 
	toolchains JSON NOT NULL, 
	current_job VARCHAR(40), 
	release VARCHAR(64) DEFAULT '' NOT NULL, 
	lock_place VARCHAR(64) DEFAULT '' NOT NULL, 
	foreign_cpus JSON DEFAULT '[]' NOT NULL, 
	trackers JSON, 
	clock_ahead DOUBLE, 
	started_at DATETIME NOT NULL, 
	last_seen_at DATETIME NOT NULL, 
	CONSTRAINT pk_workers PRIMARY KEY (id)
);
INSERT INTO "workers" VALUES('host:1:2','host',1,'{"key":"AMD EPYC 7R13 avx2 t2","name":"AMD EPYC 7R13","threads":2}','{"text":"llvm -mcpu=znver3","threads":2}','[]','[{"engine":"relay","tvm":"0.19.0","llvm":"22.1.8"}]',NULL,'','','[]',NULL,NULL,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000');
CREATE TABLE workloads (
	workload_digest VARCHAR(64) NOT NULL, 
	workload_key TEXT NOT NULL, 
	tuner VARCHAR(32) NOT NULL, 
	definition TEXT NOT NULL, 
	CONSTRAINT pk_workloads PRIMARY KEY (workload_digest)
);
INSERT INTO "workloads" VALUES('d6a98598212ed729f5b9a4d1b7ff4dcc1341bbfc740993325b9107298521422f','dense','metaschedule','["dense", "a module"]');
CREATE INDEX ix_idempotency_keys_created_at ON idempotency_keys (created_at);
CREATE INDEX ix_models_created_at_id ON models (created_at, id);
CREATE INDEX ix_records_export ON records (tuner, target, device_key, toolchain, id);
CREATE INDEX ix_records_history ON records (workload_digest, target, device_key, toolchain, id);
CREATE INDEX ix_records_job_id_id ON records (job_id, id);
CREATE INDEX ix_records_lookup ON records (workload_digest, target, device_key, toolchain, latency);
CREATE INDEX ix_tokens_owner ON tokens (owner);
CREATE INDEX ix_workers_last_seen_at ON workers (last_seen_at);
CREATE INDEX ix_browser_sessions_expires_at ON browser_sessions (expires_at);
CREATE INDEX ix_model_owners_owner ON model_owners (owner);
CREATE INDEX ix_artifacts_best ON artifacts (model_digest, target, device_key, published_median);
CREATE INDEX ix_artifacts_job_id ON artifacts (job_id);
CREATE INDEX ix_job_events_job_id_id ON job_events (job_id, id);
CREATE INDEX ix_job_labels_name_value ON job_labels (name, value);
CREATE INDEX ix_shared_rounds_job_id_state ON shared_rounds (job_id, state);
CREATE UNIQUE INDEX uq_shared_rounds_at_work ON shared_rounds (job_id, workload_digest) WHERE state IN ('open', 'claimed');
CREATE INDEX ix_tuning_tasks_name_workload_digest ON tuning_tasks (name, workload_digest);
CREATE INDEX ix_tuning_tasks_workload_digest ON tuning_tasks (workload_digest);
CREATE INDEX ix_webhook_deliveries_job_id ON webhook_deliveries (job_id);
CREATE INDEX ix_webhook_deliveries_next_attempt_at ON webhook_deliveries (next_attempt_at);
CREATE INDEX ix_imported_records_candidates ON imported_records (owner, workload_digest, target, device_key, toolchain, tuner, state, latency);
CREATE INDEX ix_imported_records_export ON imported_records (owner, tuner, target, device_key, toolchain, state, id);
CREATE INDEX ix_data_sets_created_at_id ON data_sets (created_at, id);
CREATE INDEX ix_data_sets_digest ON data_sets (digest);
CREATE INDEX ix_data_sets_owner ON data_sets (owner);
CREATE UNIQUE INDEX ix_data_sets_names ON data_sets (owner, name) WHERE deleted_at IS NULL;
CREATE INDEX ix_jobs_model_digest_created_at ON jobs (model_digest, created_at);
CREATE INDEX ix_jobs_device_key_toolchain_created_at ON jobs (device_key, toolchain, created_at);
CREATE INDEX ix_jobs_owner_created_at ON jobs (owner, created_at);
CREATE INDEX ix_jobs_token_id_state ON jobs (token_id, state);
CREATE INDEX ix_jobs_group_name_created_at ON jobs (group_name, created_at);
CREATE INDEX ix_jobs_leased ON jobs (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX ix_jobs_created_at_id ON jobs (created_at, id);
CREATE INDEX ix_jobs_state_created_at ON jobs (state, created_at);
CREATE INDEX ix_jobs_owner_started_at ON jobs (owner, started_at);
CREATE INDEX ix_jobs_part_of ON jobs (part_of);
CREATE INDEX ix_jobs_queue ON jobs (state, priority, owner, created_at, id) WHERE part_of IS NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('imported_records',1);
INSERT INTO "sqlite_sequence" VALUES('job_events',8);
INSERT INTO "sqlite_sequence" VALUES('records',2);
INSERT INTO "sqlite_sequence" VALUES('shared_rounds',1);
COMMIT;
