"""The page of one job, in every state that a job can be in."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient

from api.dashboard import formats
from domain.artifacts import OutputError, Variant, Verification
from domain.jobs import Budget, EventKind, Failure, JobState, Precision, Stage
from domain.models import TensorSpec
from domain.tokens import Scope
from domain.webhooks import Webhook
from storage import artifacts, events, jobs, webhooks
from tests.support.api.factories import SHAPES, Service
from tests.support.api.scripted import ScriptedWorker
from tests.support.dashboard import seeding, stories
from tests.support.dashboard.networks import CLASSIFIER, MOBILENET, RESNET
from tests.support.dashboard.pages import Page, counted_queries
from tests.support.dashboard.seeding import Seeded, Seeder
from tests.support.dashboard.visitors import visitor
from tuner.results import benchmark

_HTMX = {"HX-Request": "true"}


def look(browser: TestClient, job_id: str) -> str:
    answer = browser.get(f"/jobs/{job_id}")
    assert answer.status_code == 200
    return answer.text


def test_the_operators_of_a_long_build_are_shown(client: TestClient, service: Service) -> None:
    worker, model = ScriptedWorker(service), client.put("/v1/models", content=b"a model").json()["id"]
    job_id = client.post("/v1/jobs", json={"model": model, "input_shapes": SHAPES}).json()["id"]
    lease = worker.claim(job_id)
    told = {"stage": "baseline", "status": "working", "message": "relay built 12 of 43 operators"}
    with service.database.transaction() as session:
        jobs.set_stage(session, job_id, lease, Stage.BASELINE)
        events.append(session, job_id, EventKind.STAGE, told, now=datetime.now(UTC))
    assert told["message"] in look(client, job_id)
    with service.database.transaction() as session:
        jobs.set_stage(session, job_id, lease, Stage.PLAN)
        started = {"stage": "plan", "status": "started", "share": 0.2}
        events.append(session, job_id, EventKind.STAGE, started, now=datetime.now(UTC))
    assert told["message"] not in look(client, job_id)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("succeeded", "Tuning made it 1."),
        ("gained_nothing", "tuning gave no significant gain"),
        ("running", "sum over operators, estimated"),
        ("beginning", "<strong data-of=\"stage\">import</strong>"),
        ("queued", "Waiting for a worker with a GPU"),
        ("canceling", "Canceling…"),
        ("canceled", "Canceled. Finished trials are kept"),
        ("failed", "no engine imports the model"),
        ("untunable", "every trial of every tuning task failed"),
        ("hostile", "Tuning made it"),
    ],
)  # fmt: skip
def test_every_state_says_first_what_matters(
    browser: TestClient, full: tuple[Service, Seeded], name: str, said: str
) -> None:
    page = look(browser, full[1].all[name])
    assert said in page.split('<div class="columns">')[0]


def test_names_are_text_in_every_state(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    for job_id in full[1].all.values():
        Page(look(browser, job_id)).check_no_markup_of_users()
    page = Page(look(browser, full[1].hostile))
    for text in (
        "<script>alert('model')</script>&amp;.onnx",
        "<img src=x onerror=alert(1)>",
        "</td><script>y</script>",
        "<b>team</b>=<script>1</script>",
        "<u>x</u>",
        "<i>g</i>",
        "warning: <b>no</b> cached schedule",
    ):
        assert text in page.text
    assert "<b>Evil</b>" in Page(look(browser, full[1].failed)).text


def test_stages_tell_where_the_job_is(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    def told(name: str) -> list[str]:
        return re.findall(r'<li class="is-([a-z]+)"', look(browser, full[1].all[name]))

    assert told("succeeded") == ["done"] * 8
    assert told("running") == ["done"] * 3 + ["now"] + ["ahead"] * 4
    assert told("beginning") == ["now"] + ["ahead"] * 7
    assert told("failed") == ["ended"] + ["ahead"] * 7
    assert told("queued") == ["ahead"] * 8
    assert "38 s" in look(browser, full[1].succeeded)


def test_tasks_stand_in_the_order_of_the_time_that_they_took(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    page = look(browser, full[1].succeeded)
    rows = re.findall(r'<tr data-task="(\d+)">(.*?)</tr>', page, re.DOTALL)
    expected = sorted(
        range(len(RESNET.operators)),
        key=lambda place: -RESNET.operators[place].weight * RESNET.operators[place].default,
    )
    assert [int(position) for position, _ in rows] == expected
    shares = [re.findall(r'</svg><span class="nowrap">(≈ )?([\d.]+) %', row) for _, row in rows]
    assert sum(float(before[1]) for before, _ in shares) == pytest.approx(100, abs=2)
    assert sum(float(after[1]) for _, after in shares) == pytest.approx(100, abs=2)
    assert not any(guessed for pair in shares for guessed, _ in pair)


def test_shares_after_wait_until_every_operator_was_measured(service: Service, client: TestClient) -> None:
    """Defaults of another precision than f32 are not known: FLOPs tell of before, and seconds alone of after."""
    seeder, how = Seeder(service), {"age": timedelta(hours=1), "trials": 4, "precision": Precision.BF16}
    begun = look(client, seeder.running(CLASSIFIER, share=0.15, **how))
    assert [after for _, after in _shares(begun)] == ["–"] * len(CLASSIFIER.operators)
    assert "not every operator was measured" in begun
    ended = look(client, seeder.succeeded(CLASSIFIER, **how))
    assert all(before.startswith("≈ ") for before, _ in _shares(ended))
    assert sum(float(after.removesuffix(" %")) for _, after in _shares(ended)) == pytest.approx(100, abs=2)
    assert "not every operator was measured" not in ended


def test_a_job_without_a_trial_says_why_there_is_no_plot(service: Service, client: TestClient) -> None:
    with Seeder(service).story(CLASSIFIER, age=timedelta(hours=1)) as covered:
        covered.trials = 0
        lease = covered.claim()
        covered.prepare(lease)
        covered.tune(lease)
        covered.publish(lease, service.blobs)
    page = look(client, covered.job_id)
    assert "Earlier searches cover this budget: 32 trials of these tasks are on record" in page
    assert "The plot starts" not in page
    with Seeder(service).story(CLASSIFIER, age=timedelta(minutes=1)) as waiting:
        waiting.prepare(waiting.claim())
    assert "The plot starts with the first trial." in look(client, waiting.job_id)
    with service.database.transaction() as session:
        jobs.request_cancel(session, waiting.job_id, now=waiting.at)
        lease = jobs.get(session, waiting.job_id).lease
        assert lease is not None
        waiting.session = session
        waiting.finish(lease, JobState.CANCELED)
    page = look(client, waiting.job_id)
    assert "The job ended before its first trial." in page
    assert "The plot starts" not in page


def test_the_profile_sorts_by_loss_and_adds_up(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    page = _profile(look(browser, full[1].succeeded))
    losses = [float(text) for text in re.findall(r'data-label="Loss">([^<]+)<', page)]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == len(RESNET.operators) + 3
    sums = page.split("Sums of the profile")[1].split("</table>")[0]
    cells = [[float(text) for text in re.findall(r'"number">([-+.\d]+)<', row)] for row in sums.split("<tr>")[2:]]
    *parts, whole = cells
    assert [sum(side) for side in zip(*parts, strict=True)] == pytest.approx(whole, abs=0.003)
    assert whole[0] - whole[1] == pytest.approx(whole[3], abs=0.0015)
    assert sum(losses) == pytest.approx(whole[3] - parts[-1][3], abs=0.02)
    text = Page(page).text
    for said in (
        "kernels without a node: 3",
        "fused_layout_transform_0 ×3",
        "nodes without a kernel: 1",
        "GB/s from",
        "layers of OpenVINO alone: 2",
        "Reorder ×2",
    ):
        assert said in text
    widths = [float(text) for text in re.findall(r'class="is-side-\d" x="0" y="\d+" width="([\d.]+)%"', page)]
    assert max(widths) == pytest.approx(100 / 1.04, abs=0.01)


def _profile(page: str) -> str:
    return page.split('aria-labelledby="profile-title"')[1].split("</section>")[0]


def test_the_bar_goes_on_where_seconds_end_the_search(service: Service, client: TestClient) -> None:
    """After 7 % of the planned trials, too."""
    with Seeder(service).story(CLASSIFIER, age=timedelta(hours=1), trials=100, budget=Budget(seconds=300)) as story:
        lease = story.claim()
        story.prepare(lease)
        story.tune(lease, share=0.07)
    bar, head = _bar(look(client, story.job_id))
    assert "at most" in head
    assert "of tuning left" in head
    with service.database.transaction() as session:
        story.session = session
        story.begin(lease, Stage.COMPILE)
    after, head = _bar(look(client, story.job_id))
    assert bar < 0.5 < 0.8 < after < 1
    assert "of tuning left" not in head


def _bar(page: str) -> tuple[float, str]:
    """The value of the bar, and what is written above it."""
    found = re.search(r'<div class="card progress">(.*?)<progress [^>]*max="1" value="([\d.]+)"', page, re.DOTALL)
    assert found
    return float(found[2]), found[1]


def test_a_failed_verification_shows_errors_build_by_build(service: Service, client: TestClient) -> None:
    right = OutputError(output="y", dtype="float32", max_abs=2e-6, max_rel=1e-6, atol=1e-5, rtol=5e-4, passed=True)
    builds = {
        "untuned relay": (replace(right, max_abs=0.1, max_rel=1.7e-3, passed=False), replace(right, output="z")),
        "untuned relax": (replace(right, max_abs=1e308, max_rel=1e308, passed=False, fault="NaN", not_finite=2),),
    }
    found = {
        name: Verification(variant=Variant.UNTUNED, seeds=(0,), outputs=outputs) for name, outputs in builds.items()
    }
    failure = benchmark.nothing_right(found)
    with Seeder(service).story(CLASSIFIER, age=timedelta(minutes=5)) as story:
        lease = story.claim()
        story.place(lease)
        story.fail(lease, Failure(code=failure.code, message=failure.message, details=failure.details))
    page = re.sub(r"<[^>]+>|\s+", " ", look(client, story.job_id))
    rows = [" ".join(row.split()) for row in page.split("Allowed")[1].split("untuned")[1:4]]
    assert rows[0].startswith("relay y off by 0.17 % of its largest magnitude 0.05 %")
    assert rows[1].startswith("relay z off by 0.0001 % of its largest magnitude 0.05 %")
    assert rows[2].startswith("relax y NaN in 2 elements 0.05 %")
    assert "e+308" not in page


def test_notes_leave_out_what_the_choice_says(service: Service, client: TestClient) -> None:
    note = "rewritten for tuning: 13 layers padded to vectors"
    with Seeder(service).story(CLASSIFIER, age=timedelta(minutes=1)) as story:
        story.prepare(story.claim())
        for message in (note, "the tuned build crashed"):
            story.tell(EventKind.NOTE, {"message": message})
    page = look(client, story.job_id)
    assert page.count(note) == 1
    assert f"The model was {note}." in page
    assert "the tuned build crashed" in page


def _shares(page: str) -> list[tuple[str, str]]:
    rows = re.findall(r'<tr data-task="\d+">(.*?)</tr>', page, re.DOTALL)
    cells = [re.findall(r'</svg><span class="nowrap">([^<]+)</span>', row) for row in rows]
    return [(before, after) for before, after in cells]


def test_what_others_find_later_is_no_gain_of_the_job(service: Service, client: TestClient) -> None:
    seeder = Seeder(service)
    earlier = seeder.succeeded(CLASSIFIER, age=timedelta(hours=2), trials=3, gain=0.99)
    before = re.findall(r'data-label="Best">([^<]+)<', look(client, earlier))
    seeder.succeeded(CLASSIFIER, age=timedelta(hours=1), trials=6)
    after = re.findall(r'data-label="Best">([^<]+)<', look(client, earlier))
    assert before == after
    assert len(before) == len(CLASSIFIER.operators)


def test_a_comparison_has_a_table_with_every_number(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    service, seeded = full
    with service.database.reading() as session:
        artifact = artifacts.of_job(session, seeded.succeeded)
    assert artifact is not None
    page = look(browser, seeded.succeeded)
    for timing in artifact.report.timings.values():
        for seconds in (timing.median, timing.mean, timing.p90, timing.p99, timing.min, timing.max, timing.ci_low):
            assert f"{seconds * 1e3:.1f} ms" in page
    for interval in (artifact.report.speedup_over_untuned_interval, artifact.report.speedup_over_reference_interval):
        assert interval is not None
        assert f"× ({formats.digits(interval[0])} – {formats.digits(interval[1])})" in page
    assert page.count("<strong>5") + page.count("<strong>3") + page.count("<strong>2") >= 3
    assert "3.6e-07" in page


def test_one_frequency_is_no_range(client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    ranged = Seeder(service).succeeded(CLASSIFIER, age=timedelta(hours=2), trials=3)
    monkeypatch.setattr(stories, "_CONDITIONS", replace(stories._CONDITIONS, megahertz=(2595.9, 2596.2)))
    single = Seeder(service).succeeded(CLASSIFIER, age=timedelta(hours=1), trials=3)
    assert "threads, 3\u202f400–3\u202f700 MHz" in look(client, ranged)
    assert "threads, 2\u202f596 MHz" in look(client, single)


def test_an_output_that_was_not_compared_agrees_with_nothing(client: TestClient, service: Service) -> None:
    blank = TensorSpec(name="blank", dtype="float32", shape=(1,))
    network = replace(CLASSIFIER, outputs=(*CLASSIFIER.outputs, blank))
    page = look(client, Seeder(service).succeeded(network, age=timedelta(hours=1), trials=6))
    agrees = re.findall(r'<td class="break">(\S+) .*?</td>\s*<td>(.*?)</td>', page)
    assert ("blank", '<strong>not compared</strong> <span class="muted small">no finite number</span>') in agrees
    assert {shown for name, shown in agrees if name != "blank"} == {'<span class="gain-up">yes</span>'}


def test_the_headline_has_the_units_of_the_table(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    """0.126 ms, as its report says, are 126 µs beside it."""
    page = look(browser, full[1].gained_nothing)
    headline = re.search(r'<p class="headline[^>]*>(.*?)</p>', page, re.DOTALL)
    assert headline
    times = re.findall(r"[\d.]+ [mµn]?s\b", headline[1])
    assert len(times) == 2
    assert all(f"<strong>{time}</strong>" in page for time in times)


def test_a_bundle_shows_what_it_holds(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    page = look(browser, full[1].succeeded)
    for name in ("libmodel.so", "tunesmith.h", "manifest.json", "evidence.json", "records.json", "example.py"):
        assert f"<code>{name}</code>" in page
    assert "1.60 MB" in page
    assert f'{seeding.DEVICE.name} <span class="mono small muted">{seeding.DEVICE.key}<' in page
    link = re.findall(r'href="(/v1/artifacts/[^"]+/download)"', page)
    assert browser.get(link[0]).status_code == 200


def test_a_bundle_whose_bytes_are_gone_is_said_to_be_so(service: Service, client: TestClient) -> None:
    job_id = Seeder(service).succeeded(CLASSIFIER, age=timedelta(hours=1), trials=2)
    with service.database.reading() as session:
        artifact = artifacts.of_job(session, job_id)
    assert artifact is not None
    service.blobs.delete(artifact.digest)
    assert "cannot be read from the store" in look(client, job_id)


def test_what_nobody_ran_claims_nothing(service: Service, client: TestClient) -> None:
    unproven = benchmark.unmeasured({}, records=3, target="llvm -mcpu=cortex-a72")
    with Seeder(service).story(CLASSIFIER, age=timedelta(hours=1), trials=2) as story:
        lease = story.claim()
        story.prepare(lease)
        story.publish(lease, service.blobs, unproven)
    page = look(client, story.job_id)
    assert "results and speed are unverified" in page
    assert "not timed or verified" in page
    assert "There is no profile: nothing ran." in page
    assert "Download bundle" in page
    assert "gain-up" not in client.get("/").text


def test_what_an_emulator_verified_is_said_to_be(service: Service, client: TestClient) -> None:
    right = OutputError(output="y", dtype="float32", max_abs=1e-6, max_rel=1e-7, atol=1e-5, rtol=5e-4, passed=True)
    found = {Variant.UNTUNED: Verification(variant=Variant.UNTUNED, seeds=(0, 1, 2), outputs=(right,))}
    report = benchmark.unmeasured(found, records=None, target="llvm", emulator="qemu-aarch64")
    with Seeder(service).story(CLASSIFIER, age=timedelta(hours=1), trials=2) as story:
        lease = story.claim()
        story.prepare(lease)
        story.publish(lease, service.blobs, report)
    page = look(client, story.job_id)
    assert "verified under qemu-aarch64, not timed." in page
    assert "The build was verified under qemu-aarch64, not timed." in page
    assert "unverified" not in page
    assert "Results compared with ONNX Runtime" in page


def test_the_parts_that_change_come_alone(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    path = f"/jobs/{full[1].running}"
    whole, parts = browser.get(path).text, browser.get(path, headers=_HTMX).text
    live = re.findall(r'data-live id="([a-z-]+)"', whole)
    assert len(live) >= 5
    assert sorted(re.findall(r'^<div id="(job-[a-z]+)">', parts, re.MULTILINE)) == sorted(live)
    assert "<html" not in parts


def test_a_page_goes_on_behind_the_events_that_it_tells(browser: TestClient, full: tuple[Service, Seeded]) -> None:
    address = re.findall(r'data-events="([^"]+)"', look(browser, full[1].succeeded))[0]
    assert browser.get(address).status_code == 204


def test_a_page_costs_the_same_however_much_a_job_has(service: Service, client: TestClient) -> None:
    seeder = Seeder(service)
    small = seeder.succeeded(CLASSIFIER, age=timedelta(hours=2), trials=2)
    large = seeder.succeeded(MOBILENET, age=timedelta(hours=1), trials=6)
    with counted_queries() as few:
        look(client, small)
    with counted_queries() as many:
        look(client, large)
    assert len(many) == len(few) <= 31


def test_canceling(service: Service, client: TestClient) -> None:
    running = Seeder(service).running(CLASSIFIER, share=0.5, age=timedelta(minutes=1), trials=2)
    assert f'action="/jobs/{running}/cancel"' in look(client, running)
    answer = client.post(f"/jobs/{running}/cancel", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{running}")
    assert "is-canceling" in look(client, running)


def test_retrying_leads_to_the_new_job(service: Service, client: TestClient) -> None:
    queued = _queued(service)
    client.post(f"/jobs/{queued}/cancel")
    assert f'action="/jobs/{queued}/retry"' in look(client, queued)
    answer = client.post(f"/jobs/{queued}/retry")
    assert answer.status_code == 200
    assert answer.url.path != f"/jobs/{queued}"
    assert "is-queued" in answer.text
    assert service.publisher.rung == 1


def test_a_webhook_tells_how_its_message_fares(service: Service, client: TestClient) -> None:
    queued, url = _queued(service), "https://hooks.example/<b>end</b>"
    assert "webhook-title" not in look(client, queued)
    with service.database.transaction() as session:
        webhooks.attach(session, queued, Webhook(url=url, secret="whsec_c2VjcmV0"))
    page = look(client, queued)
    assert "https://hooks.example/&lt;b&gt;end&lt;/b&gt;" in page
    assert "It is called when the job ends" in page
    assert "c2VjcmV0" not in page
    client.post(f"/jobs/{queued}/cancel")
    assert "Not delivered yet" in look(client, queued)
    now = datetime.now(UTC)
    with service.database.transaction() as session:
        claimed = webhooks.claim(session, webhooks.deliveries(session, queued)[0], now=now, seconds=10)
        assert claimed is not None
        webhooks.note_failed(session, claimed, status=500, error="the receiver said no", next_attempt_at=None)
    page = look(client, queued)
    assert "Given up" in page
    assert "after 1 attempt, last status 500" in page
    assert "the receiver said no" in page
    answer = client.post(f"/jobs/{queued}/resend", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{queued}")
    assert "Not delivered yet" in look(client, queued)


def test_what_cannot_be_done_is_said_in_a_page(service: Service, client: TestClient) -> None:
    queued = _queued(service)
    answer = client.post(f"/jobs/{queued}/retry")
    assert answer.status_code == 409
    assert "<code>job_not_finished</code>" in answer.text


def test_a_reader_is_shown_no_buttons(service: Service) -> None:
    queued = _queued(service)
    reader = visitor(service, "local", [Scope.READ])
    page = look(reader, queued)
    assert "/cancel" not in page
    assert "/new?like=" not in page
    assert reader.post(f"/jobs/{queued}/cancel").status_code == 403


def test_others_jobs_do_not_exist(service: Service) -> None:
    queued = _queued(service)
    stranger = visitor(service, "stranger")
    for path in ("", "/curve.json"):
        assert stranger.get(f"/jobs/{queued}{path}").status_code == 404
    for action in ("cancel", "retry"):
        assert stranger.post(f"/jobs/{queued}/{action}").status_code == 404
    with service.database.reading() as session:
        assert jobs.get(session, queued).state == "queued"


def test_an_engine_log_shows_its_end(service: Service, client: TestClient) -> None:
    queued = _queued(service)
    service.logs.mkdir(parents=True)
    lines = [f"line {number}" for number in range(500)]
    (service.logs / f"{queued}.log").write_text("\n".join(lines))
    page = look(client, queued)
    assert "line 499" in page
    assert "line 300" not in page


def _queued(service: Service) -> str:
    with Seeder(service).story(CLASSIFIER, age=timedelta(minutes=1)) as story:
        return story.job_id
