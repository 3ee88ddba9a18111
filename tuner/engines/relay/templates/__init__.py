"""AutoTVM templates that supplement TVM's own."""
