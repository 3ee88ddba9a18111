"""What is pinned is pinned wholly, under licences that may be shipped, and can be audited."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
AUDIT = ROOT / "requirements" / "audit.py"
LOCKED = sorted([*ROOT.glob("requirements/*.txt"), *ROOT.glob("tuner/engines/*/requirements.txt")])
REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+==\S+(?: ; [^\\]+)?(?: --hash=sha256:[0-9a-f]{64})+")
COPYLEFT = re.compile(r"\b(A?GPL|LGPL|General Public License|EUPL|SSPL|BUSL)\b", re.IGNORECASE)
USED_AS_A_LIBRARY = {"psycopg", "psycopg-binary"}
"""LGPL: installed from an index as it is, changed by nobody."""


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_package_has_a_version_and_hashes_and_no_address(path: Path) -> None:
    lines = path.read_text().replace(" \\\n    ", " ").splitlines()
    wrong = [line for line in lines if line and not line.startswith("#") and not REQUIREMENT.fullmatch(line)]
    assert not wrong
    assert "://" not in path.read_text()


def test_files_that_share_an_environment_agree() -> None:
    audit = loaded()
    app, more = (ROOT / "requirements" / "app.txt"), ("otel", "dev")
    versions = dict(audit.pins([app]))
    for name in more:
        pinned = audit.pins([ROOT / "requirements" / f"{name}.txt"])
        differs = {package for package, version in pinned if versions.get(package, version) != version}
        assert not differs, name


def test_the_applications_licences_may_be_shipped() -> None:
    found = {}
    for name, _ in loaded().pins([ROOT / "requirements" / "app.txt", ROOT / "requirements" / "otel.txt"]):
        try:
            about = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue
        named = [about.get("License-Expression") or "", *(about.get_all("Classifier") or [])]
        told = " ".join(text for text in named if "License" in text or text == named[0])
        found[name] = told or (about.get("License") or "")[:200]
    assert len(found) > 50, "the environment of the tests holds the application's packages"
    assert {name for name, licence in found.items() if COPYLEFT.search(licence)} == USED_AS_A_LIBRARY & set(found)


class Osv(BaseHTTPRequestHandler):
    """Knows of one vulnerability, in celery."""

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        assert self.path == "/v1/querybatch"
        assert all(query["package"]["ecosystem"] == "PyPI" for query in queries)
        body = json.dumps({"results": [self.known(query) for query in queries]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def known(self, query: dict[str, Any]) -> dict[str, Any]:
        return {"vulns": [{"id": "PYSEC-1"}]} if query["package"]["name"] == "celery" else {}

    def log_message(self, *_: object) -> None:
        pass


class Clean(Osv):
    def known(self, query: dict[str, Any]) -> dict[str, Any]:
        return {}


@pytest.fixture
def service(request: pytest.FixtureRequest) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), request.param)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def audited(url: str) -> subprocess.CompletedProcess[str]:
    environment = {"TUNESMITH_AUDIT_URL": url, "no_proxy": "*"}
    return subprocess.run([sys.executable, AUDIT], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("service", [Osv], indirect=True)
def test_what_is_known_is_told_with_the_files_that_pin_it(service: str) -> None:
    done = audited(service)
    assert done.returncode == 1
    assert re.fullmatch(r"celery \S+: PYSEC-1 \(requirements/app.txt\)\n", done.stdout)


@pytest.mark.parametrize("service", [Clean], indirect=True)
def test_nothing_known_is_fine(service: str) -> None:
    done = audited(service)
    assert (done.returncode, done.stdout) == (0, "")
    assert re.search(r"audit: \d+ pinned packages, known vulnerabilities in 0", done.stderr)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "file:///etc/passwd"])
def test_a_service_that_cannot_be_asked_is_no_clean_bill(url: str) -> None:
    done = audited(url)
    assert (done.returncode, done.stdout) == (4, "")
    assert "NOT DONE" in done.stderr
    assert "nothing is known" in done.stderr


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", AUDIT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
