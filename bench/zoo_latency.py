"""Latency over the zoo, for ``./run bench latency --zoo``: a row for each model, kept as soon as it is measured.

A run that was interrupted continues. A row has the commit (``rows.commit``), the CPU and the settings that it was
measured with; the table has only those of one commit, of this CPU and these settings. Each model is tuned by a service
without records, so that no row depends on those before it. A job that fails or hangs costs its row, which has a
``reason``.

``compiled`` is the library of the published bundle, the best that the job compiled, and ``published`` is the bundle in
the runtime that its report names. ``vs_ort`` and ``vs_better`` tell how many times as fast as ONNX Runtime, and as the
faster of it and OpenVINO in f32, ``compiled`` is; a model without a verified library counts ``MISSING``. ``audit``
has the operators that lose most against ONNX Runtime, from the job's profile (``tunesmith explain``). Models that
cannot be fetched, or that ONNX Runtime cannot run, count nowhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import latency, note, rows, show, zoo
from bench.rows import Row
from domain import errors
from domain.artifacts import Runtime, Variant
from tuner.host import environments, hardware
from tunesmith import errors as client_errors

MISSING = 0.5
"""The ratio of a model without a verified library."""
ENOUGH = 0.95
_SETTINGS = ("threads", "seconds", "tuner", "without")
"""Options that rows of one table have in common."""
_SIDES = {
    "ort": "reference", "openvino": "openvino f32", "untuned_relay": "untuned relay", "untuned_relax": "untuned relax",
    "compiled": "tuned f32", "published": "published f32",
}  # fmt: skip
"""Columns, and the names of ``bench.latency``."""
_AUDITED = 5
"""Operators of a row's audit."""
_FAILURES = (
    errors.TunesmithError, client_errors.TunesmithError, subprocess.SubprocessError, OSError, ValueError, SystemExit
)  # fmt: skip


def main(options: argparse.Namespace) -> int:
    facts = {
        "commit": options.of or rows.commit(), "cpu": hardware.device(options.threads).key,
        **{name: getattr(options, name) for name in _SETTINGS},
    }  # fmt: skip
    kept = rows.read(options.rows)
    wanted = [name for name in zoo.part(options.zoo) if name in (options.models or zoo.MODELS)]
    if not options.of:
        kept = _measured(wanted, kept, facts, options)
    found = report([row for row in kept if row["model"] in wanted], facts)
    if options.markdown:
        sys.stdout.write(markdown(found["rows"]))
    else:
        show(found)
    return 0


def _measured(
    wanted: Sequence[str], kept: Sequence[Row], facts: Mapping[str, Any], options: argparse.Namespace
) -> list[Row]:
    """Measure and save a row for each model that has none with these facts, or that is to be measured again."""
    home = Path(os.environ["TUNESMITH_HOME"])
    environments.install(latency.OPENVINO, home, on_progress=note)
    kept = list(kept)
    for name in wanted:
        former = [row for row in kept if row["model"] == name and rows.has(row, facts)]
        if options.again or not former:
            measured = {**_row(zoo.MODELS[name], options, home), **facts}
            note(json.dumps(measured))
            kept = [row for row in kept if row not in former] + [measured]
            rows.save(options.rows, kept)
    return kept


def report(kept: Sequence[Row], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of the rows with these facts, summaries of its parts, and how many rows are left out."""
    table = [row for row in kept if rows.has(row, facts)]
    elsewhere = [row for row in kept if not rows.has(row, {name: facts[name] for name in ("commit", "cpu")})]
    parts = {name: [row for row in table if name in ("all", row["part"])] for name in ("all", "seen", "unseen")}
    return {
        **facts,
        "left_out": {
            "other_commit_or_cpu": len(elsewhere), "other_settings": len(kept) - len(table) - len(elsewhere),
        },
        "summary": {name: summary(found) for name, found in parts.items()},
        "rows": table,
    }  # fmt: skip


def markdown(table: Sequence[Row]) -> str:
    """Return the rows as a table for a page: medians in ms, and how many times as fast as the better runtime we are."""
    heads = (
        "network", "ONNX Runtime", "OpenVINO f32", "untuned", "compiled", "against the better",
        "published against the better (95 %)", "job",
    )  # fmt: skip
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, ["---"] * len(heads), *map(_cells, table)))


def _cells(row: Row) -> list[str]:
    times = [row[side] for side in ("ort_ms", "openvino_ms", "untuned_ms", "compiled_ms")]
    interval = row["published_vs_better_interval"]
    published = f"{row['published_vs_better']:.2f}" if row["published_vs_better"] else ""
    return [
        row["model"] + (", unseen" if row["part"] == "unseen" else ""),
        *(f"{each:#.3g}".rstrip(".") if each else "" for each in times),
        f"{row['vs_better']:.2f}" if row["vs_better"] else row["reason"] or "",
        published + (f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""),
        f"{row['job_seconds']:.0f} s" if row["job_seconds"] else "",
    ]


def summary(table: Sequence[Row]) -> dict[str, Any]:
    """Return geometric means, over 1 where we are faster, and counts of models."""
    counted = [row for row in table if row["vs_ort"] is not None]
    better = [row["vs_better"] for row in counted]
    gains = [row["untuned_ms"] / row["compiled_ms"] for row in counted if row["untuned_ms"] and row["compiled_ms"]]
    return {
        "models": len(counted),
        "not_counted": len(table) - len(counted),
        "without_compiled": sum(row["compiled_ms"] is None for row in counted),
        "geomean_vs_ort": latency.geomean([row["vs_ort"] for row in counted]),
        "geomean_vs_better": latency.geomean(better),
        "geomean_published_vs_better": latency.geomean([row["published_vs_better"] for row in counted]),
        "geomean_vs_untuned": latency.geomean(gains),
        f"at_least_{ENOUGH}_of_better": sum(ratio >= ENOUGH for ratio in better),
        "faster_than_both": sum(ratio > 1 for ratio in better),
        "won": dict(Counter(row["runtime"] or "none" for row in counted)),
    }


def _row(model: zoo.ZooModel, options: argparse.Namespace, home: Path) -> Row:
    """Tune and measure a model."""
    note(f"{model.name}: {datetime.now(UTC):%H:%M}")
    row: Row = {
        "model": model.name, "family": model.family, "part": "unseen" if model.unseen else "seen",
        "at": f"{datetime.now(UTC):%Y-%m-%d}", "reason": None, **columns({}),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tunesmith-latency-") as scratch:
        folder = Path(scratch)
        try:
            given = latency.Model(name=model.name, path=zoo.fetch(model, home), shapes=model.input_shapes)
            row["reason"] = _tune(given, options, home, folder)
            bundles = latency.bundles(folder, model.name) or {"f32": (None, {})}
            pythons = latency.Pythons.of(home)
            measured = latency.measure(given, bundles, pythons, folder / model.name, threads=options.threads)
        except _FAILURES as error:
            return {**row, "reason": _first_line(error)}
    return {**row, **columns(measured)}


def _tune(model: latency.Model, options: argparse.Namespace, home: Path, folder: Path) -> str | None:
    """Return why there is no build; None if there is one."""
    order = latency.Order(precision="f32", tuner=options.tuner, seconds=options.seconds, threads=options.threads)
    try:
        with latency.service(folder, home, without=options.without):
            job = latency.tune(folder, model, order)
    except _FAILURES as error:
        return _first_line(error)
    if job["failure"]:
        return f"{job['failure']['code']}: {job['failure']['message']}"[:300]
    return None if job["state"] == "succeeded" else f"the job is {job['state']}"


def columns(measured: Mapping[str, Any]) -> Row:
    """Return the columns of a row of ``bench.latency``; None for what was not measured."""
    job = measured.get("jobs", {}).get("f32", {})
    found: Row = {
        "ort_ms": measured.get("ort_ms"), "openvino_ms": measured.get("openvino_ms"),
        "untuned_relay_ms": measured.get("untuned", {}).get("relay"),
        "untuned_relax_ms": measured.get("untuned", {}).get("relax"),
        "untuned_ms": measured.get("untuned_ms"), "compiled_ms": measured.get("tuned_ms"),
        "published_ms": measured.get("published_ms"), "runtime": job.get("report", {}).get("runtime"),
        **{name: job.get("report", {}).get(name) for name in ("runtime_version", "runtime_model", "runtime_options")},
        "budget_seconds": job.get("budget", {}).get("seconds"), "job_seconds": job.get("run_seconds"),
        "trials": job.get("trials"),
    }  # fmt: skip
    is_library = found["runtime"] == Runtime.TVM
    ratios = measured.get("ratios", {})
    missing = {"ratio": MISSING if found["ort_ms"] else None, "interval": None}
    compiled = ratios.get(_SIDES["compiled"], {Variant.REFERENCE: missing})
    published = compiled if is_library else ratios.get(_SIDES["published"], {Variant.REFERENCE: missing})
    least = _least(published)
    for side in ("load_ms", "peak_mb", "intervals_ms"):
        found[side] = {column: measured.get(side, {}).get(name) for column, name in _SIDES.items()}
        if is_library:
            found[side]["published"] = found[side]["compiled"]
    return found | {
        "vs_ort": _rounded(compiled[Variant.REFERENCE]["ratio"]),
        "vs_better": _rounded(_least(compiled)["ratio"]),
        "published_vs_better": _rounded(least["ratio"]),
        "published_vs_better_interval": least["interval"] and tuple(map(_rounded, least["interval"])),
        "summary": job.get("report", {}).get("summary"),
        "audit": _audit(job.get("profile")),
        **{name: measured.get(name) for name in ("noisy", "reasons", "problems")},
    }


def _audit(profile: Mapping[str, Any] | None) -> Row | None:
    """Return where the published build loses most, in ms of one run; None for a job without a profile.

    ``rest_ms`` are all other operators, ``outside_ms`` what no kernel accounts for.
    """
    if profile is None:
        return None
    largest = profile["operators"][:_AUDITED]
    return {
        "ms": _ms(profile["seconds"]), "ort_ms": _ms(profile["reference_seconds"]),
        "openvino_ms": _ms(profile["openvino_seconds"]),
        "largest": [
            {
                "name": each["name"], "kernels": len(each["kernels"]), "ms": _ms(each["seconds"]),
                "ort_ms": _ms(each["reference_seconds"]), "openvino_ms": _ms(each["openvino_seconds"]),
                "share": each["share"] and round(each["share"], 3), "bound": each["bound"],
            }
            for each in largest
        ],
        "rest_ms": _ms(sum(each["seconds"] for each in profile["operators"][_AUDITED:])),
        "outside_ms": _ms(profile["outside"]),
    }  # fmt: skip


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 4)


def _least(ratios: Mapping[str, Row]) -> Row:
    """Return the comparison with the better runtime."""
    return min(ratios.values(), key=lambda each: each["ratio"] or 0.0)


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"
