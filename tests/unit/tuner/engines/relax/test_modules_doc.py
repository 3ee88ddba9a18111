"""The page that says what modules may hold says what the engine takes."""

from __future__ import annotations

import re

from tuner.catalogue import ROOT
from tuner.engines.relax.modules import admission


def test_the_list_of_intrinsics_is_whole() -> None:
    text = (ROOT / "docs" / "how-to" / "irmodules.md").read_text()
    listed = text.partition("<!-- intrinsics -->")[2].partition("<!-- /intrinsics -->")[0]
    assert sorted(re.findall(r"`([^`]+)`", listed)) == sorted(admission.INTRINSICS)
