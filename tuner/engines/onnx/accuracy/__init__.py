"""How far outputs are from the reference's, and how far those of a correct build may be."""
