"""Stage ``benchmark``: reference, untuned and tuned in turns, and the choice of what to publish."""

from __future__ import annotations

from pathlib import Path

from storage import codec
from tuner import benchmark
from worker.engines import REFERENCE
from worker.pipeline import measuring, variants, verifying
from worker.pipeline.work import INPUTS, Outcome, Work


def run(work: Work) -> Outcome:
    verifications = verifying.load(work)
    inputs = work.arrays(INPUTS)[0]
    model = Path(work.compile_params["model"])
    contenders = [benchmark.reference_contender(work.engines.get(REFERENCE), model, inputs, threads=work.threads)]
    for variant in variants.compiled(work):
        # One that did not run at all has nothing to be timed.
        if verifications[variant].outputs:
            compiled, folder = variants.engine(work, variant), variants.folder(work, variant)
            contenders.append(benchmark.compiled_contender(variant, compiled, folder, inputs, threads=work.threads))
    with measuring.alone(work):
        timings = benchmark.interleave(contenders, seconds=work.settings.benchmark_seconds, canceled=work.canceled)
    return {"report": codec.dump(benchmark.judge(timings, verifications))}
