"""A leader's side: the decided order, pushing, elections, high watermark and ISR."""
