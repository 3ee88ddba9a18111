"""What the plots of a job say: titles and ticks of their axes, and what the estimate is compared with."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser.fixtures import Site
from tests.support.browser.visit import until, visiting
from tests.support.dashboard.seeding import Seeded

pytestmark = pytest.mark.browser

NOTE_TEXTS = """
const write = CanvasRenderingContext2D.prototype.fillText;
window.written = [];
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const { e, f } = this.getTransform();
  const plot = this.canvas.closest("[data-plot]");
  if (plot) window.written.push([plot.dataset.plot, text, Math.round(x + e)]);
  return write.apply(this, arguments);
};
"""
"""Has the page note in ``written`` each text in a plot, with how far from the left it stands."""
_TICKS = """async ([values, units]) => {
  const found = await import(document.querySelector('script[src*="js/job"]').src.replace("job.js", "format.js"));
  return found.ticks(values, units);
}"""


def _drawn(page: Page) -> dict[str, list[tuple[str, int]]]:
    """Texts in each plot, with how far from the left they stand."""
    until(page, "window.written.some((one) => one[0] === 'tasks' && one[1] === 'GFLOPS')")
    found = defaultdict(list)
    for plot, text, x in page.evaluate("window.written"):
        found[plot].append((text, x))
    return found


def test_axes_have_titles_and_one_unit_and_begin_together(browser: Browser, full: tuple[Site, Seeded]) -> None:
    site, seeded = full
    with visiting(browser, site.url, site.token) as visit:
        visit.page.add_init_script(NOTE_TEXTS)
        visit.go(f"/jobs/{seeded.succeeded}")
        drawn = _drawn(visit.page)
        estimate, tasks = drawn["estimate"], drawn["tasks"]
        assert {"Trials", "Time of one run"} <= dict(estimate).keys()
        assert {"Trials", "GFLOPS"} <= dict(tasks).keys()
        # A tick of the trials stands at the same place in both, zero too; the other axis of the estimate has units.
        trials = {tick for tick in estimate if tick[0].isdigit()}
        assert {"0", "10"} <= dict(trials).keys()
        assert trials <= set(tasks)
        units = {text.split()[1] for text, _ in estimate if re.fullmatch(r"[\d.]+ \S+", text)}
        assert len(units) == 1
        visit.page.evaluate("window.written = []")
        visit.page.get_by_text("Seconds", exact=True).click()
        assert "Seconds of tuning" in dict(_drawn(visit.page)["tasks"])


def test_lines_are_named_for_when_they_were_measured(browser: Browser, full: tuple[Site, Seeded]) -> None:
    site, seeded = full
    with visiting(browser, site.url, site.token) as visit:
        legend = visit.page.locator('[data-plot="estimate"] .u-legend')
        visit.go(f"/jobs/{seeded.succeeded}")
        expect(legend).to_contain_text("Sum over operators, estimated")
        for name in ("ONNX Runtime", "Untuned", "Tuned"):
            expect(legend).to_contain_text(re.compile(rf"{name}, measured:?\s*[\d.]+ .s"))
        expect(legend).not_to_contain_text("when the job began")
        visit.go(f"/jobs/{seeded.running}")
        expect(legend).to_contain_text("Untuned, measured when the job began")
        expect(legend).to_contain_text("Reference, measured when the job began")
        expect(legend).not_to_contain_text("Tuned, measured")


def test_ticks(browser: Browser, full: tuple[Site, Seeded]) -> None:
    site, seeded = full
    expected: list[tuple[list[float], list[list[object]], list[str]]] = [
        ([0, 0.0005, 0.001], [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]], ["0.0 ms", "0.5 ms", "1.0 ms"]),
        ([0, 2.5e-7, 5e-7], [[1e-6, "µs"], [1e-9, "ns"]], ["0 ns", "250 ns", "500 ns"]),
        ([2.25, 2.5, 2.75], [[1, ""]], ["2.25", "2.50", "2.75"]),
        ([50, 100, 150], [[1, ""]], ["50", "100", "150"]),
        ([0], [[1, "s"]], ["0 s"]),
    ]
    with visiting(browser, site.url, site.token) as visit:
        visit.go(f"/jobs/{seeded.succeeded}")
        for values, units, texts in expected:
            assert visit.page.evaluate(_TICKS, [values, units]) == texts
