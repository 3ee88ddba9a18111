"""AutoTVM templates of our own, beside those of TVM."""
