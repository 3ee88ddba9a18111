from tests.support.tuner.engines.fixtures import (
    engine_logs,
    inputs,
    prepared,
    reference,
    relax,
    relax_twin,
    relay,
    relay_twin,
    twin,
)

__all__ = ["engine_logs", "inputs", "prepared", "reference", "relax", "relax_twin", "relay", "relay_twin", "twin"]
