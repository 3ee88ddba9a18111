"""The shared vocabulary: frozen dataclasses, enums, the error tree and the ports. Standard library only."""
