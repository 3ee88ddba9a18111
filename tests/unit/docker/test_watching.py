"""What Prometheus and Grafana are told to ask for is there to be asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
import yaml
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from tests.support.api.factories import AUTHORIZED, make_service
from worker import metrics as worker_metrics

FOLDER = Path(__file__).parents[3] / "docker"
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "grafana" / "dashboards" / "tunesmith.json").read_text())
QUERIES = [
    *((rule["alert"], rule["expr"]) for rule in RULES),
    *((panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]),
]
OF_PROMETHEUS = {"up": {"job", "instance"}}
FUNCTIONS = {"rate", "increase", "histogram_quantile"}
AGGREGATIONS = {"sum", "max", "min", "topk"}
WORDS = {"and", "by"}
TOKEN = re.compile(
    r"\s+|(?P<name>[a-zA-Z_]\w*)|(?P<number>\d+(?:\.\d+)?)|(?P<labels>\{[^}]*\})|(?P<range>\[\d+[smhd]\])"
    r"|(?P<sign>==|>=|<=|[()<>/*+,-])"
)
MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"[^"]*"\s*(?:,|$)')


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Names of samples, and the labels that each has."""
    service = make_service(tmp_path_factory.mktemp("service"))
    with TestClient(service.app, headers=AUTHORIZED) as client:
        client.get("/v1/jobs")
        api = client.get("/metrics").text
    service.database.close()
    worker_metrics.attempt_ended("failed", code="no_valid_trial")
    worker_metrics.engine_started("relay", 1.0, again=True)
    worker_metrics.engine_failed("relay", "engine_crashed")
    worker_metrics.stage_done("tune", 1.0)
    workers = prometheus_client.generate_latest(worker_metrics.REGISTRY).decode()
    found = dict(OF_PROMETHEUS)
    for text in (api, workers):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, {"job", "instance"}).update(sample.labels)
    return found


def tokens(query: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(query):
        found = TOKEN.match(query, at)
        assert found, f"{query[at:]!r} is not of the PromQL that is used here"
        at = found.end()
        if found.lastgroup:
            yield found.lastgroup, found[0]


def check(query: str, known: dict[str, set[str]]) -> set[str]:
    """The metrics asked for. As far as a reader without a grammar gets: names, labels, ranges and parentheses."""
    listed = list(tokens(query))
    asked: set[str] = set()
    for (kind, text), (next_kind, next_text) in zip(listed, [*listed[1:], ("end", "")], strict=True):
        if kind == "name" and text in FUNCTIONS | AGGREGATIONS:
            assert next_text in ("(", "by"), f"{text} is called"
        elif kind == "name" and text not in WORDS and text in known:
            asked.add(text)
            is_counter = text.endswith(("_total", "_bucket", "_sum", "_count"))
            is_ranged = next_kind == "range" or (next_kind == "labels" and f"{next_text}[" in query)
            assert is_ranged == is_counter, f"{text} is asked for over a time if, and only if, it only grows"
    labels = {label for names in asked for label in known[names]} | {"le"}
    used = [name for kind, text in listed if kind == "labels" for name in matched(text)]
    words = {*known, *FUNCTIONS, *AGGREGATIONS, *WORDS}
    used += [text for kind, text in listed if kind == "name" and text not in words]
    assert set(used) <= labels, f"{set(used) - labels} are no metrics, and labels of none of {asked}"
    assert query.count("(") == query.count(")")
    return asked


def matched(labels: str) -> list[str]:
    inside = labels[1:-1]
    found = MATCHER.findall(inside)
    assert MATCHER.sub("", inside).strip() == "", f"{labels} has matchers"
    return [name for name, _ in found]


@pytest.mark.parametrize("query", [query for _, query in QUERIES], ids=[title for title, _ in QUERIES])
def test_every_query_asks_for_metrics_and_labels_that_there_are(query: str, known: dict[str, set[str]]) -> None:
    assert check(query, known)


@pytest.mark.parametrize(
    "wrong",
    [
        "max(tunesmith_queue_years) > 1",
        "max by (colour) (tunesmith_jobs)",
        'max(tunesmith_jobs{colour="red"})',
        "max(tunesmith_jobs",
        "rate(tunesmith_jobs[5m])",
        "sum(tunesmith_worker_lease_losses_total)",
        'max(tunesmith_jobs{state="queued)',
    ],
)
def test_a_query_that_would_find_nothing_is_noticed(wrong: str, known: dict[str, set[str]]) -> None:
    with pytest.raises(AssertionError):
        assert check(wrong, known)


def test_every_metric_of_ours_is_on_the_dashboard_or_in_an_alert(known: dict[str, set[str]]) -> None:
    asked = {name for _, query in QUERIES for name in check(query, known)}
    families = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in known if name.startswith("tunesmith_")}
    assert families - {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in asked} == {
        "tunesmith_worker_engine_starts",  # engine_start_seconds counts them as well
    }


def test_alerts_have_names_severities_and_summaries() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        asked = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        kept = set(re.findall(r"by \(([\w, ]+)\)", rule["expr"])) | (
            {"job", "instance"} if "up{" in rule["expr"] else set()
        )
        assert asked <= kept, rule["alert"]


def test_prometheus_reads_its_token_from_a_file_and_the_rules_from_where_they_are_mounted() -> None:
    settings: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    api, workers = settings["scrape_configs"]
    assert api["authorization"] == {"credentials_file": "/run/secrets/tunesmith_metrics_token"}
    assert [Path(path).name for path in settings["rule_files"]] == ["alerts.yml"]
    jobs = {api["job_name"], workers["job_name"]}
    assert all(re.fullmatch("tunesmith-.+", job) for job in jobs), "alerts tell them by that"


def test_panels_do_not_overlap_and_ask_the_source_that_is_chosen() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
