"""Which member gets which partitions: the assignors, and the rebalance that asks them. Pure."""
