from tests.support.tuner.engines.fixtures import engine_logs, inputs, prepared, reference, relay

__all__ = ["engine_logs", "inputs", "prepared", "reference", "relay"]
