"""A message whose acknowledgement the broker never got."""

from __future__ import annotations

import pytest
from celery import Celery

from worker.messages import AcknowledgedRequest


@pytest.mark.parametrize("lost", [None, ConnectionResetError, BrokenPipeError])
def test_whoever_could_not_acknowledge_takes_the_next_one(
    lost: type[OSError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Celery(broker="memory://", set_as_current=False)

    @app.task(name="a task")
    def task() -> None: ...

    with app.connection_for_write() as connection:
        queue = connection.SimpleQueue("a queue")
        channel = queue.channel
        channel.basic_qos(0, 1, False)
        for _ in range(2):
            app.send_task("a task", queue="a queue", connection=connection)
        message = queue.get(timeout=5)
        assert not channel.qos.can_consume(), "one at a time"

        def refuse(*_: object, **__: object) -> None:
            assert lost
            raise lost("the broker is away")

        if lost:
            monkeypatch.setattr(channel, "basic_ack", refuse)
        request = AcknowledgedRequest(
            message,
            app=app,
            task=task,
            on_ack=message.ack_log_error,
            connection_errors=(ConnectionResetError,),
            headers=message.headers,
            body=message.payload,
            decoded=True,
            utc=True,
        )
        if lost is BrokenPipeError:
            with pytest.raises(BrokenPipeError):
                request.acknowledge()
        else:
            request.acknowledge()
        assert message.acknowledged
        assert channel.qos.can_consume()
        queue.close()
