"""Messages as a worker takes them from the broker."""

from __future__ import annotations

from kombu.transport import redis, virtual


class ForgettingQoS(redis.QoS):
    """A message counts as acknowledged once that was tried, whatever became of it.

    Where the acknowledgement is lost, because the broker is frozen or cut off, kombu's own class counts the message as
    one at work for ever, and a worker that takes one at a time takes no other. The broker gives such a message to a
    worker once more, after the visibility timeout, and the claim in the database makes that harmless.
    """

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)
        except BaseException:
            virtual.QoS.ack(self, delivery_tag)
            raise


def forget_lost_acknowledgements() -> None:
    """In this process, which kombu gives no other way to say so."""
    redis.Channel.QoS = ForgettingQoS
