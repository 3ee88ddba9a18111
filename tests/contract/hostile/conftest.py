from tests.support.hostile.fixtures import reader

__all__ = ["reader"]
