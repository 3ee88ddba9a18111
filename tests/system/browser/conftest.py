from tests.support.browser.fixtures import browser, empty, full, varied

__all__ = ["browser", "empty", "full", "varied"]
