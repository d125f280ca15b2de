"""Records on their way: items, bundles and their errors."""
