"""A leader's side: the decided order, pushing, elections, ISR."""
