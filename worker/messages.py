"""Messages as a worker takes them from the broker."""

from __future__ import annotations

from celery.worker.request import Request
from kombu.transport.virtual import QoS


class AcknowledgedRequest(Request):
    """A message counts as acknowledged once that was tried, whatever became of it.

    Where the acknowledgement was lost, because the broker was frozen or cut off, Celery counts the message as one at
    work for ever, and a worker that takes one at a time would take no other. The broker gives such a message to a
    worker once more, after the visibility timeout, and the claim in the database makes that harmless.
    """

    def acknowledge(self) -> None:
        try:
            super().acknowledge()
        finally:
            message = self.message
            if not message.acknowledged and message.channel is not None:
                # What is left of ``message.ack()`` without the broker.
                QoS.ack(message.channel.qos, message.delivery_tag)
                message._state = "ACK"
