"""The page that says what modules may hold says what the engine takes."""

from __future__ import annotations

import re

from tuner.engines.relax.modules import admission
from tuner.host.catalogue import ROOT


def test_the_list_of_intrinsics_is_whole() -> None:
    text = (ROOT / "docs" / "how-to" / "irmodules.md").read_text()
    listed = text.partition("<!-- intrinsics -->")[2].partition("<!-- /intrinsics -->")[0]
    assert sorted(re.findall(r"`([^`]+)`", listed)) == sorted(admission.INTRINSICS)
