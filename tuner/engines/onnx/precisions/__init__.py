"""Models in bfloat16 or 8-bit integers: which layers may have narrow numbers, and the numbers' ranges."""
