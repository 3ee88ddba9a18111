"""docker-compose.yml is what Compose takes, and keeps the rules that a service in production keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from api.settings import ApiSettings
from domain import release
from process.settings import Settings, variable
from storage.settings import StorageSettings
from tests.system.deployment import composing
from tuner.host.settings import TunerSettings
from worker import main as worker_main
from worker.settings import WorkerSettings

SERVICES = composing.services()
ONCE = {"migrate", "bucket"}
"""They do one thing and end, so nothing asks whether they live."""
LONG_LIVED = sorted(set(SERVICES) - ONCE)


def test_the_file_is_a_compose_file() -> None:
    schema = json.loads((Path(__file__).parent / "compose-spec.json").read_text())
    validator = jsonschema_rs.Draft7Validator(schema)
    assert [error.message for error in validator.iter_errors(composing.composition())] == []
    broken = composing.composition()
    broken["services"]["api"]["helthcheck"] = {}
    assert not validator.is_valid(broken)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"]), "not root, by number"
    assert not [mount for mount in volumes(service) if "docker.sock" in mount]
    assert service["tmpfs"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_has_limits(name: str) -> None:
    limits = SERVICES[name]["deploy"]["resources"]["limits"]
    assert limits["memory"]
    assert limits["pids"]
    assert "cpus" in limits or "cpuset" in SERVICES[name]
    assert SERVICES[name]["logging"]["options"]["max-size"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_images_are_of_exact_versions(name: str) -> None:
    image = SERVICES[name]["image"]
    tag = image.rpartition(":")[2]
    assert re.match(r"v?\d+\.\d+", tag), image
    if image.startswith("tunesmith-") and name != "s3":
        assert tag == release.VERSION
    target = SERVICES[name].get("build", {}).get("target")
    assert target is None or target in composing.stages()


@pytest.mark.parametrize("name", LONG_LIVED)
def test_a_service_is_asked_whether_it_lives(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert composing.seconds(check["timeout"]) <= composing.seconds(check["interval"])
    assert SERVICES[name]["restart"] == "unless-stopped"


def test_a_service_is_given_the_time_that_it_takes_to_stop() -> None:
    assert all("stop_grace_period" in SERVICES[name] for name in LONG_LIVED)
    for name in ("worker-cpu", "worker-gpu"):
        assert composing.seconds(SERVICES[name]["stop_grace_period"]) > worker_main._STOP_SECONDS + 5
    default = ApiSettings.model_fields["shutdown_seconds"].default
    assert composing.seconds(SERVICES["api"]["stop_grace_period"]) > default + 5


def test_secrets_are_files_and_each_is_there() -> None:
    defined = composing.composition()["secrets"]
    used = {secret for service in SERVICES.values() for secret in map(source, service.get("secrets", []))}
    assert used == set(defined)
    assert all(value["file"].startswith("./docker/secrets/") for value in defined.values())
    for name, service in SERVICES.items():
        given = {target(secret) for secret in service.get("secrets", [])}
        named = set(re.findall(r"/run/secrets/([\w.]+)", json.dumps(service)))
        assert named <= given, name
    assert composing.is_ignored("docker/secrets/token")


def test_no_secret_is_written_into_the_file() -> None:
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            secret = re.search(r"PASSWORD|TOKEN|_KEY|DATABASE_URL|BROKER_URL", key)
            assert not secret or value.startswith("/run/secrets/"), f"{name}: {key}"


@pytest.mark.parametrize("name", ["api", "worker-cpu", "worker-gpu", "migrate", "bucket"])
def test_settings_are_read_as_they_are_given(
    name: str, made_secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in SERVICES[name]["environment"].items():
        monkeypatch.setenv(key, value.replace("/run/secrets", str(made_secrets)))
    kinds: list[type[Settings]] = [StorageSettings, TunerSettings, WorkerSettings, ApiSettings]
    loaded = [kind() for kind in kinds]
    given = {key.removesuffix("_FILE") for key in SERVICES[name]["environment"] if key.startswith("TUNESMITH_")}
    assert given <= {variable(field) for each in loaded for field in type(each).model_fields}
    storage = loaded[0]
    assert isinstance(storage, StorageSettings)
    if name != "bucket":
        assert storage.database_url.endswith("@postgres:5432/tunesmith")
    if name != "migrate":
        assert storage.blob_secret_key
        assert storage.blob_url.startswith("s3://tunesmith/blobs?endpoint=http://s3:8333&")


def test_servers_are_reached_by_nobody_outside() -> None:
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"api", "grafana"}
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", []))
    networks = composing.composition()["networks"]
    inside = {name for name, network in networks.items() if network.get("internal")}
    assert inside == {"back", "rpc"}
    for name in ("postgres", "valkey", "s3", "rpc-tracker", "prometheus"):
        assert set(SERVICES[name]["networks"]) <= inside, name


def test_what_is_optional_is_asked_for() -> None:
    profiles = {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service}
    assert profiles == {
        "worker-gpu": ["gpu"],
        "rpc-tracker": ["rpc"],
        "prometheus": ["monitoring"],
        "grafana": ["monitoring"],
    }


def test_everything_that_is_mounted_exists() -> None:
    named = set(composing.composition()["volumes"])
    for service in SERVICES.values():
        for mount in volumes(service):
            origin = mount.partition(":")[0]
            assert (
                (composing.ROOT / origin).exists() if origin.startswith("./") else origin in named or origin[0] == "/"
            )


def test_workers_of_a_host_measure_in_turns() -> None:
    """They share the folder of the locks, and none shares its home folder with another."""
    for name in ("worker-cpu", "worker-gpu"):
        mounts = volumes(SERVICES[name])
        assert "locks:/var/lock/tunesmith" in mounts
        assert "/var/lib/tunesmith" in mounts


def test_what_prometheus_asks_is_there() -> None:
    asked = yaml.safe_load((composing.FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    targets = [name for job in asked for each in job.get("static_configs", []) for name in each["targets"]]
    assert targets == ["api:8000"]
    (workers,) = [each for job in asked for each in job.get("dns_sd_configs", [])]
    for name in workers["names"]:
        assert SERVICES[name]["environment"]["TUNESMITH_WORKER_METRICS_PORT"] == str(workers["port"])
        assert SERVICES[name]["environment"]["TUNESMITH_WORKER_METRICS_HOST"] == "0.0.0.0"  # noqa: S104
        assert set(SERVICES[name]["networks"]) & set(SERVICES["prometheus"]["networks"])


def volumes(service: dict[str, Any]) -> list[str]:
    found: list[str] = service.get("volumes", [])
    return found


def source(secret: str | dict[str, str]) -> str:
    return secret if isinstance(secret, str) else secret["source"]


def target(secret: str | dict[str, str]) -> str:
    return secret if isinstance(secret, str) else secret["target"]
