"""A message whose acknowledgement the broker never got."""

from __future__ import annotations

import pytest
from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.transport import redis as transport

from tests.support.servers import redis
from worker import messages

PREFETCH = 1


def test_whoever_could_not_acknowledge_takes_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport.Channel, "QoS", transport.Channel.QoS)
    messages.forget_lost_acknowledgements()
    with (
        redis.running() as server,
        Connection(server.url(), transport_options={"socket_timeout": 1}) as connection,
    ):
        queue = connection.SimpleQueue("queue")
        queue.channel.basic_qos(0, PREFETCH, False)
        for number in range(2):
            queue.put(number)
        message = queue.get(timeout=5)
        assert not queue.channel.qos.can_consume()
        server.freeze()
        errors = (*connection.connection_errors, *connection.channel_errors, OperationalError)
        with pytest.raises(errors):
            message.ack()
        server.thaw()
        assert queue.channel.qos.can_consume()
        again = queue.get(timeout=5)
        assert (message.payload, again.payload) == (0, 1)
        again.ack()
        assert queue.channel.qos.can_consume()
        queue.close()
