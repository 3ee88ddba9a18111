"""Where engines work on models of strangers: with limits, without credentials, and with as little around as the kernel
lets us take away. ``limits`` is the host's side; the rest runs between the host's fork and the engine's first line."""
