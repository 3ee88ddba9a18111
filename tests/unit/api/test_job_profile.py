from __future__ import annotations

from api.jobs.pages import job_profile
from domain.profiles import OperatorTime, Peak, Profile


def test_bars_whose_parts_add_up_to_more_than_the_whole_end_inside_the_chart() -> None:
    convolution = OperatorTime(
        name="Conv a", kernels=("conv",), nodes=("Conv a",), seconds=0.003, reference_seconds=0.008
    )
    profile = Profile(
        variant="tuned",
        compared_with="onnxruntime",
        threads=1,
        seconds=0.004,
        reference_seconds=0.005,
        outside=0.001,
        reference_outside=-0.003,
        operators=(convolution,),
        peak=Peak(flops=None),
    )
    view = job_profile.view(profile)
    ours, theirs = (max(bar.begin + bar.width for bar in view.stacked(side)) for side in range(2))
    assert 0 < ours < theirs <= 100
